//! The block lists of JavaScript, in addition to those of the specification.

use super::LanguageLists;

const STARTS: &str = "it starts processes or threads of its own; do without it";
const SOCKETS: &str = "it opens sockets; use fetch";
const RUNS: &str = "it runs code from text or data, as eval does; do without it";
const NATIVE: &str = "it reaches native code or the inside of the runtime; do without it";

#[rustfmt::skip]
pub(super) const LISTS: LanguageLists = LanguageLists {
    modules: &[
        ("child_process cluster worker_threads execa shelljs cross-spawn zx node-pty bun", STARTS),
        ("net tls dgram", SOCKETS),
        ("vm vm2 module repl inspector", RUNS),
        ("v8 wasi ffi-napi ffi koffi bun:ffi", NATIVE),
    ],
    paths: "eval Function AsyncFunction GeneratorFunction execScript importScripts Worker SharedWorker \
        process.binding process._linkedBinding process.dlopen process.mainModule \
        process.getBuiltinModule process.kill process.constructor require.main require.cache \
        require.extensions module.constructor module.parent module.children module._load Deno.run \
        Deno.Command Deno.dlopen Bun.spawn Bun.spawnSync Bun.$ Reflect.construct Function.constructor",
    members: "mainModule defaultView contentWindow _linkedBinding dlopen getBuiltinModule createRequire \
        runInThisContext runInNewContext runInContext __defineGetter__ __lookupGetter__",
    writing_members: "writeFile writeFileSync writeTextFile writeTextFileSync appendFile appendFileSync \
        createWriteStream unlink unlinkSync rmSync rmdir rmdirSync mkdir mkdirSync mkdtemp mkdtempSync \
        renameSync copyFile copyFileSync cpSync truncate truncateSync ftruncate symlink symlinkSync \
        linkSync chmod chmodSync chown chownSync utimes utimesSync post patch sendBeacon setItem \
        removeItem",
    writing_paths: "fs.open fs.openSync fs.rename fs.rm fs.cp promises.open promises.rename promises.rm promises.cp",
    // Members that lead to function constructors, to the global object and to runtime internals.
    escape_members: "constructor prototype __proto__ __defineGetter__ __defineSetter__ __lookupGetter__ \
        __lookupSetter__ eval Function AsyncFunction GeneratorFunction execScript importScripts \
        globalThis defaultView contentWindow contentDocument mainModule binding _linkedBinding dlopen \
        getBuiltinModule createRequire require runInThisContext runInNewContext runInContext \
        compileFunction caller callee prepareStackTrace captureStackTrace getPrototypeOf setPrototypeOf \
        getOwnPropertyDescriptor getOwnPropertyDescriptors getOwnPropertyNames getOwnPropertySymbols \
        defineProperty defineProperties getFunction getThis _handle _load _extensions _compile",
    escape_names: "eval Function AsyncFunction GeneratorFunction globalThis global arguments \
        importScripts execScript Reflect Proxy WebAssembly require",
};

/// Names of the global object.
pub(in crate::code_safety) const GLOBAL_OBJECTS: &str =
    "globalThis global window self GLOBAL root top frames";
/// Timers, which run text arguments in browsers.
pub(in crate::code_safety) const TIMERS: &str = "setTimeout setInterval setImmediate";
