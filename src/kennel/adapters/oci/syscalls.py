"""Owns which system calls exist for a sandbox, as plain lists of names by purpose; read by seccomp.py and its tests.

Invariant: a name is in exactly one of ALLOWED, REFUSED and FILTERED. Whatever is in none of them does not exist inside:
it answers ENOSYS, which lets a C library fall back (clone3 to clone, a newer kernel's call to an older one).
docs/isolation.md gives the reason for every decision that is not obvious.
"""

from __future__ import annotations

_FILES = """
access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate
fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat
fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat lchown lgetxattr link linkat listxattr
listxattrat llistxattr lremovexattr lseek lsetxattr lstat mkdir mkdirat newfstatat open openat openat2 pread64 preadv
preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv removexattr removexattrat rename renameat
renameat2 rmdir sendfile setxattr setxattrat splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee
truncate umask unlink unlinkat ustat utime utimensat utimes vmsplice write writev chroot cachestat
"""

_WAITING = """
epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 inotify_add_watch inotify_init
inotify_init1 inotify_rm_watch pipe pipe2 poll ppoll pselect6 select signalfd signalfd4 timerfd_create timerfd_gettime
timerfd_settime io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit
"""

_MEMORY = """
brk madvise map_shadow_stack membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect mremap mseal msync
munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease
"""

_PROCESSES = """
arch_prctl execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake get_robust_list
getpgid getpgrp getpid getppid getpriority getsid gettid kill pause pidfd_open pidfd_send_signal prctl restart_syscall
rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_tgsigqueueinfo set_robust_list set_tid_address setpgid setpriority setsid sigaltstack tgkill tkill vfork wait4 waitid
getcpu getrlimit getrusage prlimit64 setrlimit ioprio_get ioprio_set sched_get_priority_max sched_get_priority_min
sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr
sched_setparam sched_setscheduler sched_yield
"""

_IDENTITY = """
capget capset getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid setgid setgroups setregid
setresgid setresuid setreuid setuid landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp
"""

_TIME = """
alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create
timer_delete timer_getoverrun timer_gettime timer_settime times
"""

_TALKING = """
accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto
setsockopt shutdown mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd
semctl semget semop semtimedop shmat shmctl shmdt shmget
"""

_MACHINE = "getrandom sysinfo uname"

_DEBUGGING = "kcmp pidfd_getfd process_vm_readv process_vm_writev ptrace"
"""strace, gdb and crash reporters inside one's own sandbox; the process and user namespaces bound their reach."""

ALLOWED: tuple[str, ...] = tuple(
    " ".join((_FILES, _WAITING, _MEMORY, _PROCESSES, _IDENTITY, _TIME, _TALKING, _MACHINE, _DEBUGGING)).split()
)
"""Pass whatever their arguments are; the kernel's own checks still hold."""

_MOUNTS = """
mount umount2 pivot_root open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr statmount
listmount name_to_handle_at open_by_handle_at quotactl quotactl_fd
"""

_KERNEL = """
acct bpf create_module delete_module fanotify_init fanotify_mark finit_module get_kernel_syms init_module io_uring_enter
io_uring_register io_uring_setup ioperm iopl kexec_file_load kexec_load lookup_dcookie nfsservctl perf_event_open
query_module reboot setdomainname sethostname setns swapoff swapon syslog userfaultfd vhangup
"""

_KEYS_AND_CLOCKS = "add_key keyctl request_key adjtimex clock_adjtime clock_settime settimeofday"

_PLACEMENT = "get_mempolicy mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node"
"""All of them or none: with EPERM from each, libnuma says that the machine has no NUMA and carries on."""

REFUSED: tuple[str, ...] = tuple(" ".join((_MOUNTS, _KERNEL, _KEYS_AND_CLOCKS, _PLACEMENT)).split())
"""Known and dangerous: they answer EPERM whatever their arguments are."""

FILTERED: tuple[str, ...] = ("clone", "ioctl", "mknod", "mknodat", "personality", "socket", "socketpair", "unshare")
"""Decided by their arguments, in seccomp.py."""

_OLDER_TABLE = """
access alarm arch_prctl chmod chown creat create_module dup2 epoll_create epoll_wait eventfd fork futimesat
get_kernel_syms getdents getpgrp inotify_init ioperm iopl lchown link lstat mkdir mknod open pause pipe poll
query_module readlink rename rmdir select signalfd stat symlink time unlink ustat utime utimes vfork
"""
X86_64_ONLY: frozenset[str] = frozenset(_OLDER_TABLE.split())
"""Calls of the older table that aarch64 never had; the aarch64 profile leaves them out."""
