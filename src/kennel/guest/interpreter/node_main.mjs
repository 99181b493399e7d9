// Owns the Node side of a JavaScript or TypeScript context: node node_main.mjs REQUESTS ANSWERS LANGUAGE.
// A worker thread reads requests from one descriptor, so that a cell that never waits can still be interrupted; the main
// thread runs cells and writes JSON lines to the other. Cells run in V8's own REPL mode: top-level await, names that may
// be declared again, state that stays.

import { writeSync, createReadStream } from 'node:fs';
import { Session } from 'node:inspector';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';
import vm from 'node:vm';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';

const OLDEST = 18;
const MOST_JSON = 1024 * 1024;
const OWN = /^\s+at .*(node:|node_main\.mjs|sucrase\.cjs|new Promise \(<anonymous>\))/;
const PATIENCE = 100; // milliseconds a main thread that waits needs at most to answer

function reader() {
  let acknowledged = 0;
  parentPort.on('message', (cell) => { acknowledged = cell; });
  const interrupt = (cell) => {
    parentPort.postMessage({ op: 'interrupt', cell });
    setTimeout(() => {
      // Asked of a thread that waits it would end whatever runs next.
      if (acknowledged >= cell) return;
      const session = new Session(); // only now: a session that stays would hold up the exit of its process
      session.connectToMainThread();
      session.post('Runtime.terminateExecution', () => session.disconnect());
    }, PATIENCE);
  };
  let rest = '';
  const input = createReadStream('', { fd: workerData.requests, encoding: 'utf8' });
  input.on('data', (piece) => {
    const lines = (rest + piece).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const request = JSON.parse(line);
      if (request.op === 'interrupt') interrupt(request.cell);
      else parentPort.postMessage(request);
    }
  });
  input.on('close', () => process.kill(process.pid, 'SIGKILL'));
}

function runner(answers, language) {
  const require = createRequire(`${process.cwd()}/cell.js`);
  const { parse, transform, TokenType } = createRequire(import.meta.url)('./vendor/sucrase.cjs');
  const session = new Session();
  session.connect();
  const post = (method, parameters) => new Promise((resolve) => {
    session.post(method, parameters, (failure, answer) => resolve(failure ? { failure } : answer));
  });
  let running = 0;

  const say = (told) => {
    let data = Buffer.from(`${JSON.stringify({ cell: running, ...told })}\n`);
    while (data.length) data = data.subarray(writeSync(answers, data));
  };

  // --- showing

  const asBundle = (value) => {
    if (value !== null && typeof value === 'object' && typeof value[Symbol.for('Jupyter.display')] === 'function') {
      return value[Symbol.for('Jupyter.display')]();
    }
    const shown = { 'text/plain': typeof value === 'string' ? value : inspect(value, { maxStringLength: 1e6 }) };
    if (value !== null && typeof value === 'object' && [Object.prototype, Array.prototype, null].includes(Object.getPrototypeOf(value))) {
      try {
        const text = JSON.stringify(value);
        if (text && text.length <= MOST_JSON) shown['application/json'] = JSON.parse(text);
      } catch { /* it holds itself, or what JSON has no word for: its text is enough */ }
    }
    return shown;
  };
  const asError = (value) => {
    if (!(value instanceof Error)) return { ename: 'Error', evalue: inspect(value), traceback: [`Uncaught ${inspect(value)}`] };
    const stack = String(value.stack ?? value).split('\n').filter((line) => !OWN.test(line));
    return { ename: String(value.name), evalue: String(value.message), traceback: stack };
  };
  const hidden = Symbol('kennel');
  const kept = { asBundle, asError };
  Object.defineProperty(globalThis, hidden, { value: kept });
  Object.assign(globalThis, {
    require,
    display: (value, options) => {
      say({ event: 'result', main: false, data: options?.raw ? value : asBundle(value) });
    },
  });
  Object.defineProperty(globalThis, '__import', {
    value: (name) => import(/^[./]/.test(name) ? pathToFileURL(require.resolve(name)).href : name.startsWith('node:') ? name : resolved(name)),
  });
  const resolved = (name) => {
    try {
      const path = require.resolve(name);
      return path.startsWith('/') ? pathToFileURL(path).href : path;
    } catch { return name; }
  };

  // --- code

  const withImports = (code) => {
    if (!code.includes('import')) return code;
    const { tokens } = parse(code, false, false, false);
    let at = 0;
    let out = '';
    tokens.forEach((token, index) => {
      if (token.type !== TokenType._import || token.start < at) return;
      const next = tokens[index + 1];
      out += code.slice(at, token.start);
      at = token.end;
      if (next?.type === TokenType.parenL) { out += '__import'; return; }
      const source = tokens.slice(index + 1).find((one) => one.type === TokenType.string);
      if (!source || next.type === TokenType.dot) { out += 'import'; return; }
      const clause = code.slice(token.end, source.start).replace(/\bfrom\s*$/, '').trim();
      out += declared(clause, code.slice(source.start, source.end));
      at = source.end;
    });
    return out + code.slice(at);
  };
  const declared = (clause, source) => {
    if (!clause) return `await __import(${source})`;
    const [, plain, space, names] = /^(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+))?\s*(\{[^]*\})?$/.exec(clause) ?? [];
    const words = [];
    if (plain) words.push(`{default: ${plain}} = await __import(${source})`);
    if (space) words.push(`${space} = await __import(${source})`);
    if (names) words.push(`${names.replace(/\s+as\s+/g, ': ')} = await __import(${source})`);
    return words.length ? `const ${words.join(', ')}` : `import ${clause} from ${source}`;
  };
  const prepared = (code) => {
    let text = code;
    try {
      if (language === 'typescript') {
        text = transform(text, { transforms: ['typescript'], disableESTransforms: true, keepUnusedImports: true }).code;
      }
      text = withImports(text);
    } catch (problem) {
      if (language === 'typescript') throw problem;
    }
    if (/^\s*\{[^]*\}\s*$/.test(text)) {
      try {
        new vm.Script(`(${text}\n)`);
        text = `(${text}\n)`;
      } catch { /* a block, not an object */ }
    }
    return text;
  };

  const brought = async (remote, how) => {
    const helper = await post('Runtime.evaluate', { expression: `globalThis[Object.getOwnPropertySymbols(globalThis).find((s) => s.description === 'kennel')].${how}` });
    const argument = 'objectId' in remote ? { objectId: remote.objectId }
      : 'unserializableValue' in remote ? { unserializableValue: remote.unserializableValue } : { value: remote.value };
    const answer = await post('Runtime.callFunctionOn', {
      objectId: helper.result.objectId, functionDeclaration: 'function (value) { return this(value); }', arguments: [argument], returnByValue: true,
    });
    return answer.result?.value;
  };

  // A cell's own variables: set before it runs, and what they were put back at its end.
  let before = [];
  const lend = (env) => {
    before = Object.keys(env).map((name) => [name, process.env[name]]);
    Object.assign(process.env, env);
  };
  const putBack = () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    before = [];
  };

  const run = async (request) => {
    const expression = `${prepared(request.code)}\n//# sourceURL=cell-${request.count}`;
    const answer = await post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, allowUnsafeEvalBlockedByCSP: true });
    if (running !== request.cell) return; // it was interrupted while it waited
    if (answer.failure || !answer.result) { interrupted(); return; }
    if (answer.exceptionDetails) {
      const thrown = answer.exceptionDetails.exception;
      say({ event: 'error', ...(await brought(thrown, 'asError') ?? { ename: thrown.className ?? 'Error', evalue: thrown.description ?? '', traceback: [] }) });
    } else if (answer.result.type !== 'undefined') {
      const data = await brought(answer.result, 'asBundle');
      say({ event: 'result', main: true, data: data ?? { 'text/plain': answer.result.description ?? '' } });
    }
    finish();
  };
  const finish = () => {
    putBack();
    say({ event: 'done' });
    worker.postMessage(running);
    running = 0;
    post('Runtime.releaseObjectGroup', { objectGroup: '' });
  };
  const interrupted = () => {
    say({ event: 'error', ename: 'Interrupted', evalue: 'the cell was interrupted', traceback: ['Interrupted: the cell was interrupted'] });
    finish();
  };

  // The worker's read cannot be called off, and an ordinary exit would wait for it: says the code, and ends at once.
  process.reallyExit = (code) => {
    say({ event: 'exiting', code: Number(code) || 0 });
    process.kill(process.pid, 'SIGKILL');
  };
  process.on('uncaughtException', (problem) => console.error('Uncaught', problem));
  process.on('unhandledRejection', (problem) => console.error('Uncaught (in promise)', problem));
  process.on('SIGINT', () => {}); // its own interrupts come over the descriptor; what it started hears the signal
  const worker = new Worker(new URL(import.meta.url), { workerData: { requests: Number(process.argv[2]) }, env: process.env });
  worker.on('message', (request) => {
    if (request.op === 'interrupt') {
      worker.postMessage(request.cell);
      if (running === request.cell) interrupted();
      return;
    }
    running = request.cell;
    lend(request.env ?? {});
    run(request).catch((problem) => {
      if (running !== request.cell) return;
      say({ event: 'error', ...asError(problem) });
      finish();
    });
  });
  worker.on('online', () => say({ event: 'ready' }));
}

if (!isMainThread) reader();
else if (Number(process.versions.node.split('.')[0]) < OLDEST) process.exit(64);
else runner(Number(process.argv[3]), process.argv[4]);
