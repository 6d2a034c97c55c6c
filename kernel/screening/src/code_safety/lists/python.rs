//! What is blocked in Python beside the lists of the specification, and what is listed from `strict` on.

use super::LanguageLists;

const STARTS: &str = "it starts processes, as subprocess does; do without it";
const NATIVE: &str = "it reaches native code, as ctypes does; do without it";
const SOCKETS: &str = "it opens sockets, as socket does; use an allowed client library";
const RUNS: &str = "it runs code from text or data, as exec does; do without it";
const ALL: &str = "it reaches every object of the process; do without it";

#[rustfmt::skip]
pub(super) const LISTS: LanguageLists = LanguageLists {
    modules: &[
        ("_posixsubprocess posix nt pty multiprocessing _multiprocessing concurrent.futures.process \
          asyncio.subprocess", STARTS),
        ("_ctypes cffi _cffi_backend", NATIVE),
        ("_socket socketserver", SOCKETS),
        ("_imp imp _frozen_importlib _frozen_importlib_external importlib.machinery importlib.abc \
          zipimport pkgutil runpy code codeop pdb bdb timeit profile cProfile marshal pickle _pickle \
          cPickle dill cloudpickle jsonpickle shelve", RUNS),
        ("gc", ALL),
    ],
    paths: "eval exec execfile compile __import__ __builtins__ __loader__ __spec__ breakpoint os.system \
        os.popen os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe \
        os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe \
        os.posix_spawn os.posix_spawnp os.fork os.forkpty os.startfile os.kill os.killpg os.ptrace \
        asyncio.create_subprocess_exec asyncio.create_subprocess_shell asyncio.subprocess \
        futures.ProcessPoolExecutor sys.meta_path sys.path_hooks sys.settrace sys.setprofile \
        sys._getframe sys._current_frames sys.breakpointhook sys.path_importer_cache \
        importlib.__import__ importlib.reload importlib._bootstrap importlib._bootstrap_external \
        importlib.machinery importlib.abc importlib.util.spec_from_file_location \
        importlib.util.spec_from_loader importlib.util.module_from_spec types.FunctionType \
        types.LambdaType types.CodeType inspect.currentframe inspect.stack inspect.trace \
        inspect.getouterframes typing.get_type_hints typing._eval_type typing.ForwardRef \
        typing.evaluate_forward_ref yaml.unsafe_load yaml.unsafe_load_all yaml.UnsafeLoader \
        pandas.read_pickle pd.read_pickle string.Formatter sys.modules.__dict__",
    members: "__subclasses__ __globals__ __builtins__ __code__ __closure__ __self__ __loader__ __spec__ \
        __import__ f_globals f_builtins f_locals f_back gi_frame cr_frame ag_frame tb_frame \
        load_module exec_module subprocess_exec subprocess_shell",
    writing_members: "write_text write_bytes unlink rmdir mkdir touch symlink_to hardlink_to rmtree \
        rename post patch delete request build_request executemany executescript to_sql \
        create_connection create_server extractall sendto sendall connect_ex",
    // Modules, what starts programs, frames and code, and what makes values of text.
    leading: "os sys builtins bltns importlib posix nt posixpath ntpath genericpath pathmod inspect pickle marshal \
        runpy pkgutil subprocess socket ctypes multiprocessing linecache copyreg weakref shutil \
        popen execl execle execlp execlpe execv execve execvp execvpe spawnl spawnle spawnlp spawnlpe \
        spawnv spawnve spawnvp spawnvpe posix_spawn posix_spawnp forkpty startfile subprocess_exec \
        subprocess_shell load_module exec_module get_type_hints attrgetter methodcaller \
        gi_frame gi_code gi_yieldfrom cr_frame cr_code cr_await cr_origin ag_frame ag_code ag_await \
        tb_frame tb_next tb_lasti f_back f_builtins f_code f_globals f_locals f_trace func_globals \
        func_code get_stack get_coro get_loop mro parse_raw parse_file create_model import_string \
        model_rebuild update_forward_refs obj codecs CodeType FunctionType LambdaType ModuleType ForwardRef",
    refused: "eval exec compile __import__ globals locals vars dir getattr setattr delattr breakpoint \
        help exit quit copyright credits license memoryview",
    globals: &[("", "\
        abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex dict \
        divmod enumerate filter float format frozenset hasattr hash hex id input int isinstance \
        issubclass iter len list map max min next object oct open ord pow print property range repr \
        reversed round set slice sorted staticmethod str sum super(2) tuple type(1) zip \
        Ellipsis NotImplemented __name__ __file__ __doc__ __debug__ \
        ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError \
        BrokenPipeError BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError \
        ConnectionRefusedError ConnectionResetError DeprecationWarning EOFError EncodingWarning Exception \
        ExceptionGroup FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit \
        IOError ImportError ImportWarning IndexError InterruptedError IsADirectoryError KeyError \
        KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError NotADirectoryError \
        NotImplementedError OSError OverflowError PendingDeprecationWarning PermissionError \
        ProcessLookupError RecursionError ReferenceError ResourceWarning RuntimeError RuntimeWarning \
        StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError SystemExit TabError \
        TimeoutError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError \
        UnicodeTranslateError UnicodeWarning UserWarning ValueError Warning ZeroDivisionError")],
    listed: &[
        ("__future__", "annotations division generator_stop print_function unicode_literals absolute_import"),
        ("abc", "ABC abstractmethod"),
        ("asyncio", "run sleep gather create_task wait wait_for as_completed shield timeout timeout_at \
            to_thread TaskGroup Queue PriorityQueue LifoQueue QueueEmpty QueueFull Lock Event Condition \
            Semaphore BoundedSemaphore Barrier Task Future CancelledError TimeoutError iscoroutine \
            iscoroutinefunction ALL_COMPLETED FIRST_COMPLETED FIRST_EXCEPTION"),
        ("base64", "a85decode a85encode b16decode b16encode b32decode b32encode b32hexdecode b32hexencode \
            b64decode b64encode b85decode b85encode decodebytes encodebytes standard_b64decode \
            standard_b64encode urlsafe_b64decode urlsafe_b64encode"),
        ("binascii", "Error Incomplete a2b_base64 a2b_hex b2a_base64 b2a_hex crc32 crc_hqx hexlify unhexlify"),
        ("bisect", "bisect bisect_left bisect_right insort insort_left insort_right"),
        ("calendar", "Calendar TextCalendar HTMLCalendar MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY \
            SUNDAY calendar day_abbr day_name firstweekday isleap leapdays month month_abbr month_name \
            monthcalendar monthrange setfirstweekday timegm weekday weekheader"),
        ("collections", "abc ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque \
            namedtuple"),
        ("collections.abc", "AsyncGenerator AsyncIterable AsyncIterator Awaitable Callable Collection \
            Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping \
            MutableMapping MutableSequence MutableSet Reversible Sequence Set Sized ValuesView"),
        ("contextlib", "AbstractAsyncContextManager AbstractContextManager AsyncExitStack ExitStack aclosing \
            asynccontextmanager closing contextmanager nullcontext suppress"),
        ("csv", "DictReader DictWriter Error QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC Sniffer \
            excel excel_tab field_size_limit reader unix_dialect writer"),
        ("dataclasses", "dataclass field asdict astuple replace fields is_dataclass FrozenInstanceError \
            KW_ONLY MISSING"),
        ("datetime", "date datetime time timedelta timezone tzinfo MINYEAR MAXYEAR UTC"),
        ("decimal", "Decimal DecimalException DivisionByZero Inexact InvalidOperation Overflow Underflow \
            ROUND_05UP ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP \
            ROUND_UP getcontext localcontext Context"),
        ("difflib", "Differ HtmlDiff SequenceMatcher context_diff get_close_matches ndiff restore unified_diff"),
        ("enum", "Enum IntEnum StrEnum Flag IntFlag auto unique"),
        ("fractions", "Fraction"),
        ("functools", "cache cached_property cmp_to_key lru_cache partial reduce total_ordering wraps(1)"),
        ("hashlib", "algorithms_available algorithms_guaranteed blake2b blake2s file_digest md5 new \
            pbkdf2_hmac scrypt sha1 sha224 sha256 sha384 sha512 sha3_224 sha3_256 sha3_384 sha3_512 \
            shake_128 shake_256"),
        ("heapq", "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest"),
        ("html", "escape unescape"),
        ("html.parser", "HTMLParser"),
        ("httpx", "get head options post! put! patch! delete! request! stream! AsyncClient Client Response \
            Request Headers URL QueryParams Timeout Limits Cookies BasicAuth Auth HTTPError HTTPStatusError \
            RequestError TransportError TimeoutException ConnectError ConnectTimeout ReadTimeout ReadError \
            InvalidURL TooManyRedirects codes USE_CLIENT_DEFAULT"),
        ("io", "BytesIO StringIO TextIOWrapper UnsupportedOperation SEEK_SET SEEK_CUR SEEK_END open"),
        ("itertools", "accumulate batched chain combinations combinations_with_replacement compress count \
            cycle dropwhile filterfalse groupby islice pairwise permutations product repeat starmap \
            takewhile tee zip_longest"),
        ("json", "loads dumps load dump JSONDecodeError JSONEncoder JSONDecoder"),
        ("math", "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf \
            erfc exp exp2 expm1 fabs factorial floor fma fmod frexp fsum gamma gcd hypot inf isclose \
            isfinite isinf isnan isqrt lcm ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi pow \
            prod radians remainder sin sinh sqrt sumprod tan tanh tau trunc ulp"),
        ("mcp", "types ClientSession McpError StdioServerParameters"),
        ("mcp.server", "FastMCP MCPServer Server NotificationOptions fastmcp stdio models lowlevel mcpserver"),
        ("mcp.server.fastmcp", "FastMCP Context Image Icon"),
        ("mcp.server.fastmcp.exceptions", "ToolError ResourceError ValidationError FastMCPError"),
        ("mcp.server.fastmcp.prompts.base", "Message UserMessage AssistantMessage"),
        ("mcp.server.mcpserver", "MCPServer Context Image Icon"),
        ("mcp.server.lowlevel", "Server NotificationOptions"),
        ("mcp.server.models", "InitializationOptions"),
        ("mcp.server.stdio", "stdio_server"),
        ("mcp.shared.exceptions", "McpError"),
        ("mcp.types", "Tool ToolAnnotations TextContent ImageContent AudioContent EmbeddedResource \
            ResourceLink Resource ResourceTemplate TextResourceContents BlobResourceContents Prompt \
            PromptArgument PromptMessage GetPromptResult CallToolResult CallToolRequest ListToolsResult \
            ReadResourceResult Annotations ErrorData Icon ContentBlock Role LoggingLevel \
            PARSE_ERROR INVALID_REQUEST METHOD_NOT_FOUND INVALID_PARAMS INTERNAL_ERROR"),
        ("os", "path environ getenv getcwd listdir scandir walk stat lstat access sep linesep pathsep curdir \
            pardir name getpid cpu_count urandom fspath fsencode fsdecode F_OK R_OK W_OK X_OK PathLike \
            DirEntry get_terminal_size error getuid getgid getppid uname times umask! remove! unlink! \
            rmdir! removedirs! rename! renames! replace! mkdir! makedirs! chdir! link! symlink! truncate! \
            utime! chmod! readlink"),
        ("os.path", "abspath basename commonpath commonprefix dirname exists lexists expanduser expandvars \
            getatime getctime getmtime getsize isabs isfile isdir islink join normcase normpath realpath \
            relpath samefile split splitext splitdrive sep"),
        ("pathlib", "Path PurePath PurePosixPath PureWindowsPath PosixPath"),
        ("pydantic", "BaseModel Field ValidationError ConfigDict AnyUrl AnyHttpUrl HttpUrl EmailStr \
            PositiveInt PositiveFloat NonNegativeInt NonNegativeFloat NegativeInt NegativeFloat StrictStr \
            StrictInt StrictBool StrictFloat SecretStr field_validator model_validator StringConstraints \
            AfterValidator BeforeValidator PrivateAttr ValidationInfo"),
        ("random", "Random SystemRandom betavariate binomialvariate choice choices expovariate gammavariate \
            gauss getrandbits lognormvariate normalvariate paretovariate randbytes randint random randrange \
            sample seed shuffle triangular uniform vonmisesvariate weibullvariate"),
        ("re", "compile search match fullmatch split findall finditer sub subn escape purge error \
            PatternError Pattern Match A ASCII DEBUG I IGNORECASE L LOCALE M MULTILINE S DOTALL X VERBOSE U \
            UNICODE NOFLAG RegexFlag"),
        ("secrets", "SystemRandom choice compare_digest randbelow randbits token_bytes token_hex \
            token_urlsafe"),
        ("statistics", "NormalDist StatisticsError correlation covariance fmean geometric_mean harmonic_mean \
            kde linear_regression mean median median_grouped median_high median_low mode multimode pstdev \
            pvariance quantiles stdev variance"),
        ("string", "ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits \
            printable punctuation whitespace Template"),
        ("sys", "argv byteorder exit executable float_info getdefaultencoding getrecursionlimit getsizeof \
            hash_info implementation int_info maxsize maxunicode platform stderr stdin stdout version \
            version_info"),
        ("textwrap", "TextWrapper dedent fill indent shorten wrap"),
        ("time", "asctime ctime gmtime localtime mktime monotonic monotonic_ns perf_counter perf_counter_ns \
            process_time process_time_ns sleep strftime strptime struct_time time time_ns timezone tzname"),
        ("typing", "AbstractSet Annotated Any AnyStr AsyncGenerator AsyncIterable AsyncIterator Awaitable \
            BinaryIO Callable ClassVar Collection Coroutine Counter DefaultDict Deque Dict Final FrozenSet \
            Generator Hashable IO ItemsView Iterable Iterator KeysView List Literal LiteralString Mapping \
            Match MutableMapping MutableSequence MutableSet NamedTuple Never NoReturn NotRequired Optional \
            OrderedDict Pattern Protocol Required Reversible Self Sequence Set Sized SupportsFloat \
            SupportsIndex SupportsInt TYPE_CHECKING Text TextIO Tuple Type TypeAlias TypeGuard TypedDict \
            Union ValuesView assert_never cast final overload override runtime_checkable"),
        ("unicodedata", "bidirectional category combining decimal decomposition digit east_asian_width \
            is_normalized lookup mirrored name normalize numeric unidata_version"),
        ("urllib", "parse"),
        ("urllib.parse", "ParseResult SplitResult parse_qs parse_qsl quote quote_from_bytes quote_plus \
            unquote unquote_plus unquote_to_bytes urldefrag urlencode urljoin urlparse urlsplit urlunparse \
            urlunsplit"),
        ("uuid", "NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 UUID uuid3 uuid4 uuid5 uuid7"),
        ("zoneinfo", "ZoneInfo ZoneInfoNotFoundError available_timezones"),
    ],
};

/// Special methods that a class may define.
pub(in crate::code_safety) const DEFINED: &str = "__init__ __new__ __post_init__ __repr__ __str__ __bytes__ __format__ \
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __len__ __length_hint__ __iter__ __next__ \
    __reversed__ __contains__ __getitem__ __setitem__ __delitem__ __missing__ __call__ __enter__ __exit__ \
    __aenter__ __aexit__ __aiter__ __anext__ __await__ __int__ __float__ __index__ __complex__ __round__ \
    __abs__ __neg__ __pos__ __invert__ __add__ __sub__ __mul__ __matmul__ __truediv__ __floordiv__ \
    __mod__ __divmod__ __pow__ __lshift__ __rshift__ __and__ __or__ __xor__ __radd__ __rsub__ __rmul__ \
    __rmatmul__ __rtruediv__ __rfloordiv__ __rmod__ __rpow__ __rand__ __ror__ __rxor__ __iadd__ __isub__ \
    __imul__ __itruediv__ __ifloordiv__ __imod__ __iand__ __ior__ __ixor__";
/// Those that may be called on `super()`.
pub(in crate::code_safety) const INHERITED: &str = "__init__ __new__ __post_init__ __repr__ __str__ __eq__ __hash__ \
    __enter__ __exit__ __aenter__ __aexit__ __getitem__ __setitem__ __delitem__ __contains__ __len__ \
    __iter__ __missing__";
/// Special names that may be read of anything: texts.
pub(in crate::code_safety) const READ: &str = "__name__ __doc__ __qualname__ __version__";
/// Special names that code may set: texts and lists of names.
pub(in crate::code_safety) const SET: &str = "__all__ __slots__ __version__ __author__ __doc__";
/// Private names that named tuples and enumerations provide.
pub(in crate::code_safety) const PROVIDED: &str =
    "_asdict _replace _fields _make _missing_ _value_ _name_";
