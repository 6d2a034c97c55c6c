//! What is blocked in JavaScript beside the lists of the specification, and what is listed from `strict`
//! on.

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
    // The ways to the constructor of functions, to the global object and to the inside of the runtime.
    leading: "constructor prototype __proto__ __defineGetter__ __defineSetter__ __lookupGetter__ \
        __lookupSetter__ eval Function AsyncFunction GeneratorFunction execScript importScripts \
        globalThis defaultView contentWindow contentDocument mainModule binding _linkedBinding dlopen \
        getBuiltinModule createRequire require runInThisContext runInNewContext runInContext \
        compileFunction caller callee prepareStackTrace captureStackTrace getPrototypeOf setPrototypeOf \
        getOwnPropertyDescriptor getOwnPropertyDescriptors getOwnPropertyNames getOwnPropertySymbols \
        defineProperty defineProperties getFunction getThis _handle _load _extensions _compile",
    refused: "eval Function AsyncFunction GeneratorFunction globalThis global require arguments \
        importScripts execScript Reflect Proxy WebAssembly",
    globals: &[
        ("", "Infinity NaN undefined isFinite isNaN parseFloat parseInt decodeURI decodeURIComponent \
            encodeURI encodeURIComponent atob btoa structuredClone queueMicrotask fetch clearTimeout \
            clearInterval clearImmediate setTimeout setInterval setImmediate \
            ArrayBuffer BigInt Blob Boolean DataView Float32Array Float64Array FormData Headers Int16Array \
            Int32Array Int8Array Map Request Set String TextDecoder TextEncoder Uint16Array Uint32Array \
            Uint8Array URLSearchParams WeakMap WeakRef WeakSet AbortController RegExp ReadableStream \
            Array Date Number Promise Response URL Symbol \
            AggregateError Error EvalError RangeError ReferenceError SyntaxError TypeError URIError"),
        ("AbortSignal", "abort any timeout"),
        ("Array", "from isArray of fromAsync"),
        ("BigInt", "asIntN asUintN"),
        ("Buffer", "alloc byteLength compare concat from isBuffer isEncoding"),
        ("Date", "UTC now parse"),
        ("Intl", "Collator DateTimeFormat ListFormat NumberFormat PluralRules RelativeTimeFormat Segmenter"),
        ("JSON", "parse stringify"),
        ("Map", "groupBy"),
        ("Math", "E LN10 LN2 LOG10E LOG2E PI SQRT1_2 SQRT2 abs acos acosh asin asinh atan atan2 atanh cbrt \
            ceil clz32 cos cosh exp expm1 floor fround hypot imul log log10 log1p log2 max min pow random \
            round sign sin sinh sqrt tan tanh trunc"),
        ("Number", "EPSILON MAX_SAFE_INTEGER MAX_VALUE MIN_SAFE_INTEGER MIN_VALUE NEGATIVE_INFINITY NaN \
            POSITIVE_INFINITY isFinite isInteger isNaN isSafeInteger parseFloat parseInt"),
        ("Object", "assign entries freeze fromEntries groupBy hasOwn is isFrozen keys seal values"),
        ("Promise", "all allSettled any race reject resolve try withResolvers"),
        ("Response", "error json redirect"),
        ("String", "fromCharCode fromCodePoint raw"),
        ("Symbol", "asyncIterator for iterator"),
        ("URL", "canParse parse"),
        ("console", "assert count debug error group groupEnd info log table time timeEnd trace warn"),
        ("crypto", "getRandomValues randomUUID subtle"),
        ("performance", "mark measure now timeOrigin"),
        ("process", "arch argv cwd env exit exitCode hrtime memoryUsage nextTick off on once pid platform \
            stderr stdin stdout title uptime version versions"),
    ],
    listed: &[
        ("@modelcontextprotocol/sdk/server/index.js", "Server"),
        ("@modelcontextprotocol/sdk/server/mcp.js", "McpServer ResourceTemplate"),
        ("@modelcontextprotocol/sdk/server/stdio.js", "StdioServerTransport"),
        ("@modelcontextprotocol/sdk/types.js", "CallToolRequestSchema ListToolsRequestSchema McpError \
            ErrorCode ListResourcesRequestSchema ReadResourceRequestSchema ListPromptsRequestSchema \
            GetPromptRequestSchema"),
        ("assert", "deepEqual deepStrictEqual equal fail match notEqual notStrictEqual ok rejects \
            strictEqual throws"),
        ("crypto", "createHash createHmac getRandomValues pbkdf2Sync randomBytes randomInt randomUUID \
            scryptSync timingSafeEqual"),
        ("events", "EventEmitter once on"),
        ("fs", "promises accessSync createReadStream existsSync lstat lstatSync open! openSync! readFile \
            readFileSync readdir readdirSync realpathSync stat statSync access constants \
            appendFile! appendFileSync! copyFile! copyFileSync! cpSync! createWriteStream! mkdir! \
            mkdirSync! mkdtempSync! rename! renameSync! rm! rmSync! rmdir! rmdirSync! unlink! unlinkSync! \
            writeFile! writeFileSync!"),
        ("fs/promises", "access lstat readFile readdir realpath stat appendFile! copyFile! cp! mkdir! \
            mkdtemp! open! rename! rm! rmdir! unlink! writeFile!"),
        ("os", "EOL arch availableParallelism cpus endianness freemem homedir hostname loadavg platform \
            release tmpdir totalmem type uptime userInfo version"),
        ("path", "basename delimiter dirname extname format isAbsolute join normalize parse posix relative \
            resolve sep win32"),
        ("querystring", "escape parse stringify unescape"),
        ("readline", "createInterface promises"),
        ("readline/promises", "createInterface"),
        ("string_decoder", "StringDecoder"),
        ("timers/promises", "setTimeout setInterval setImmediate"),
        ("url", "URL URLSearchParams domainToASCII fileURLToPath format parse pathToFileURL"),
        ("util", "format inspect isDeepStrictEqual parseArgs promisify TextDecoder TextEncoder types"),
        ("zod", "z"),
        ("zlib", "brotliCompressSync brotliDecompressSync deflateSync gunzipSync gzipSync inflateSync"),
    ],
};

/// Names of the global object.
pub(in crate::code_safety) const WORLD: &str =
    "globalThis global window self GLOBAL root top frames";
/// Timers: text that they are given is run in browsers.
pub(in crate::code_safety) const TIMERS: &str = "setTimeout setInterval setImmediate";
