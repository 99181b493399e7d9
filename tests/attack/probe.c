/* Calls every system call that a sandbox must not have, and some that it must, each in a child of its own, and prints one
 * line per call: its name and what came back (OK, the name of an errno, or SIG and a number). Arguments are plausible, and
 * harmless where a call should turn out to be allowed. Compiled by test_probe.py; runs inside the sandbox. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif
#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#endif
#define HIGH (1L << 32)

static char buffer[65536];

static void report(const char *name, int status)
{
    if (WIFSIGNALED(status))
        printf("%s SIG%d\n", name, WTERMSIG(status));
    else if (WEXITSTATUS(status) == 0)
        printf("%s OK\n", name);
    else
        printf("%s %s\n", name, strerrorname_np(WEXITSTATUS(status)));
    fflush(stdout);
}

#define TRY(name, expression)                                                                                            \
    do {                                                                                                                 \
        pid_t child = fork();                                                                                            \
        if (child == 0) {                                                                                                \
            errno = 0;                                                                                                   \
            long result = (long)(expression);                                                                            \
            _exit(result == -1 ? errno : 0);                                                                             \
        }                                                                                                                \
        int status = 0;                                                                                                  \
        waitpid(child, &status, 0);                                                                                      \
        report(name, status);                                                                                            \
    } while (0)

#define CALL(call, ...) TRY(#call, syscall(SYS_##call, ##__VA_ARGS__))

/* A clone that is allowed makes a process, which ends at once. */
static long cloned(unsigned long flags)
{
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return pid;
}

static long cloned3(uint64_t flags)
{
    uint64_t args[11] = {flags, 0, 0, 0, SIGCHLD};
    long pid = syscall(SYS_clone3, args, sizeof args);
    if (pid == 0)
        _exit(0);
    return pid;
}

static void mounts(void)
{
    uint64_t attributes[4] = {0};
    CALL(mount, "none", "/mnt", "tmpfs", 0, 0);
    CALL(umount2, "/proc/sys", 2);
    CALL(pivot_root, ".", ".");
    CALL(open_tree, AT_FDCWD, "/", 1);
    CALL(open_tree_attr, AT_FDCWD, "/", 1, attributes, sizeof attributes);
    CALL(move_mount, -1, "", AT_FDCWD, "/mnt", 4);
    CALL(fsopen, "tmpfs", 0);
    CALL(fsconfig, -1, 6, 0, 0, 0);
    CALL(fsmount, -1, 0, 0);
    CALL(fspick, AT_FDCWD, "/", 0);
    CALL(mount_setattr, AT_FDCWD, "/", 0, attributes, sizeof attributes);
    CALL(statmount, buffer, buffer, sizeof buffer, 0);
    CALL(listmount, buffer, buffer, 8, 0);
    CALL(quotactl, 0x80000100, "/dev/vda", 0, buffer);
    CALL(quotactl_fd, 0, 0x80000100, 0, buffer);
    struct { unsigned bytes; int type; char handle[128]; } handle = {.bytes = 128};
    int id;
    CALL(name_to_handle_at, AT_FDCWD, "/", &handle, &id, 0);
    CALL(open_by_handle_at, AT_FDCWD, &handle, O_RDONLY);
}

static void namespaces(void)
{
    static const struct { const char *name; unsigned long flag; } flags[] = {
        {"newns", CLONE_NEWNS}, {"newcgroup", CLONE_NEWCGROUP}, {"newuts", CLONE_NEWUTS}, {"newipc", CLONE_NEWIPC},
        {"newuser", CLONE_NEWUSER}, {"newpid", CLONE_NEWPID}, {"newnet", CLONE_NEWNET}, {"newtime", 0x80},
    };
    char name[64];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        snprintf(name, sizeof name, "unshare-%s", flags[i].name);
        TRY(name, syscall(SYS_unshare, flags[i].flag));
        snprintf(name, sizeof name, "unshare-high-%s", flags[i].name);
        TRY(name, syscall(SYS_unshare, flags[i].flag | HIGH));
        if (flags[i].flag == 0x80)
            continue;
        snprintf(name, sizeof name, "clone-%s", flags[i].name);
        TRY(name, cloned(flags[i].flag));
        snprintf(name, sizeof name, "clone-high-%s", flags[i].name);
        TRY(name, cloned(flags[i].flag | HIGH));
        snprintf(name, sizeof name, "clone-newuser-%s", flags[i].name);
        TRY(name, cloned(flags[i].flag | CLONE_NEWUSER));
    }
    TRY("clone3", cloned3(0));
    TRY("clone3-newuser", cloned3(CLONE_NEWUSER));
    int here = open("/proc/self/ns/user", O_RDONLY);
    CALL(setns, here, 0);
    TRY("setns-pidfd", syscall(SYS_setns, syscall(SYS_pidfd_open, getpid(), 0), CLONE_NEWNS));
}

static void kernel(void)
{
    struct timex clock = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    CALL(add_key, "user", "probe", "x", 1, -2);
    CALL(request_key, "user", "probe", 0, -2);
    CALL(keyctl, 0, -3, 0);
    uint32_t map[32] = {1, 4, 4, 1};
    CALL(bpf, 0, map, sizeof map);
    uint32_t event[32] = {1, 128};
    CALL(perf_event_open, event, 0, -1, -1, 0);
    CALL(userfaultfd, 1 | O_CLOEXEC);
    CALL(io_uring_setup, 8, memset(buffer, 0, 256));
    CALL(io_uring_enter, 0, 0, 0, 0, 0, 0);
    CALL(io_uring_register, 0, 0, 0, 0);
    CALL(kexec_load, 0, 0, 0, 0);
    CALL(kexec_file_load, -1, -1, 0, 0, 4);
    CALL(init_module, buffer, 16, "");
    CALL(finit_module, 0, "", 0);
    CALL(delete_module, "no_such_module", O_NONBLOCK);
    CALL(reboot, 0xfee1dead, 672274793, 0, 0);
    CALL(swapon, "/mnt", 0);
    CALL(swapoff, "/mnt");
    CALL(acct, 0);
    CALL(syslog, 10, 0, 0);
    CALL(settimeofday, 0, 0);
    CALL(clock_settime, CLOCK_REALTIME, &now);
    CALL(clock_adjtime, CLOCK_REALTIME, &clock);
    CALL(adjtimex, &clock);
    CALL(nfsservctl, 0, 0, 0);
    CALL(lookup_dcookie, 0, buffer, 16);
    CALL(vhangup);
    CALL(sethostname, "probe", 5);
    CALL(setdomainname, "probe", 5);
    CALL(fanotify_init, 0x200, 0);
    CALL(fanotify_mark, -1, 1, 1, AT_FDCWD, "/");
    CALL(mbind, 0, 0, 0, 0, 0, 0);
    CALL(get_mempolicy, 0, 0, 0, 0, 0);
    CALL(set_mempolicy, 0, 0, 0);
    CALL(set_mempolicy_home_node, 0, 0, 0, 0);
    CALL(move_pages, 0, 0, 0, 0, 0, 0);
    CALL(migrate_pages, 0, 0, 0, 0);
    CALL(memfd_secret, 0);
    CALL(remap_file_pages, 0, 0, 0, 0, 0);
    TRY("personality-read-implies-exec", syscall(SYS_personality, 0x400000));
    TRY("personality-mmap-page-zero", syscall(SYS_personality, 0x100000));
    TRY("no-such-call", syscall(4095));
#ifdef __x86_64__
    CALL(iopl, 3);
    CALL(ioperm, 0x80, 1, 1);
    CALL(create_module, "x", 1);
    CALL(get_kernel_syms, 0);
    CALL(query_module, 0, 0, 0, 0, 0);
    CALL(modify_ldt, 0, buffer, 64);
    CALL(uselib, "/lib/x");
    CALL(_sysctl, 0);
    TRY("x32-getpid", syscall(0x40000000 | SYS_getpid));
    TRY("i386-getpid", ({ long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory"); r; }));
#endif
}

static void sockets(void)
{
    char name[64];
    for (int family = 0; family <= 47; family++) {
        snprintf(name, sizeof name, "socket-family-%d", family);
        TRY(name, syscall(SYS_socket, family, SOCK_DGRAM, 0));
    }
    for (int protocol = 0; protocol < 23; protocol++) {
        snprintf(name, sizeof name, "socket-netlink-%d", protocol);
        TRY(name, syscall(SYS_socket, AF_NETLINK, SOCK_RAW, protocol));
    }
    TRY("socket-vsock-high", syscall(SYS_socket, 40 | HIGH, SOCK_STREAM, 0));
    TRY("socket-inet-high", syscall(SYS_socket, AF_INET | HIGH, SOCK_STREAM, 0));
    TRY("socket-packet-raw", syscall(SYS_socket, 17, SOCK_RAW, 0x300));
    TRY("socket-inet-raw-icmp", syscall(SYS_socket, AF_INET, SOCK_RAW, 1));
    TRY("socket-inet-raw-raw", syscall(SYS_socket, AF_INET, SOCK_RAW, 255));
    TRY("socket-inet-sctp", syscall(SYS_socket, AF_INET, SOCK_STREAM, 132));
    TRY("socket-inet-mptcp", syscall(SYS_socket, AF_INET, SOCK_STREAM, 262));
    TRY("socket-inet-tcp", syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 6));
    TRY("socket-inet6-udp", syscall(SYS_socket, AF_INET6, SOCK_DGRAM, 17));
    TRY("socket-unix-stream", syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
    int pair[2];
    TRY("socketpair-unix", syscall(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET, 0, pair));
    TRY("socketpair-tipc", syscall(SYS_socketpair, 30, SOCK_SEQPACKET, 0, pair));
    TRY("socketpair-vsock", syscall(SYS_socketpair, 40, SOCK_STREAM, 0, pair));
}

static void files(void)
{
    char byte = 'x';
    TRY("ioctl-tiocsti", syscall(SYS_ioctl, 0, TIOCSTI, &byte));
    TRY("ioctl-tiocsti-high", syscall(SYS_ioctl, 0, TIOCSTI | HIGH, &byte));
    TRY("ioctl-tioclinux", syscall(SYS_ioctl, 0, TIOCLINUX, &byte));
    TRY("ioctl-tiocgpgrp", syscall(SYS_ioctl, -1, TIOCGPGRP, buffer));
    TRY("mknodat-char", syscall(SYS_mknodat, AT_FDCWD, "/tmp/probe-char", S_IFCHR | 0600, 0x101));
    TRY("mknodat-block", syscall(SYS_mknodat, AT_FDCWD, "/tmp/probe-block", S_IFBLK | 0600, 0x700));
    TRY("mknodat-whiteout", syscall(SYS_mknodat, AT_FDCWD, "/dev/shm/probe-whiteout", S_IFCHR | 0600, 0));
    TRY("mknodat-fifo", syscall(SYS_mknodat, AT_FDCWD, "/dev/shm/probe-fifo", S_IFIFO | 0600, 0));
    unlink("/dev/shm/probe-fifo");
#ifdef SYS_mknod
    TRY("mknod-char", syscall(SYS_mknod, "/tmp/probe-char", S_IFCHR | 0600, 0x101));
    TRY("mknod-block", syscall(SYS_mknod, "/tmp/probe-block", S_IFBLK | 0600, 0x700));
#endif
}

/* What programs need: a filter that refuses everything must not pass for a good one. */
static void allowed(void)
{
    CALL(getpid);
    CALL(memfd_create, "probe", 0);
    CALL(getrandom, buffer, 16, 0);
    CALL(pidfd_open, getpid(), 0);
    CALL(seccomp, 2, 0, (uint32_t[]){0x7fff0000});
    CALL(sched_yield);
    CALL(landlock_create_ruleset, 0, 0, 1);
    TRY("clone-fork", cloned(0));
    TRY("unshare-files", syscall(SYS_unshare, CLONE_FILES | CLONE_FS));
    TRY("personality-query", syscall(SYS_personality, 0xffffffff));
    TRY("personality-no-randomize", syscall(SYS_personality, 0x40000));
    TRY("ptrace-traceme", syscall(SYS_ptrace, 0, 0, 0, 0));
    TRY("kcmp-self", syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0));
    TRY("chroot-root", syscall(SYS_chroot, "/"));
}

int main(void)
{
    mounts();
    namespaces();
    kernel();
    sockets();
    files();
    allowed();
    return 0;
}
