//! The block lists of Python, in addition to those of the specification.

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
    writing_paths: "os.remove os.unlink os.rmdir os.removedirs os.rename os.renames os.replace os.mkdir \
        os.makedirs os.chdir os.link os.symlink os.truncate os.utime os.chmod os.umask httpx.post httpx.put \
        httpx.patch httpx.delete httpx.request httpx.stream",
    // Modules, functions that start programs, frames and code objects, and functions that create values
    // from text.
    escape_members: "os sys builtins bltns importlib posix nt posixpath ntpath genericpath pathmod inspect pickle marshal \
        runpy pkgutil subprocess socket ctypes multiprocessing linecache copyreg weakref shutil \
        popen execl execle execlp execlpe execv execve execvp execvpe spawnl spawnle spawnlp spawnlpe \
        spawnv spawnve spawnvp spawnvpe posix_spawn posix_spawnp forkpty startfile subprocess_exec \
        subprocess_shell load_module exec_module get_type_hints attrgetter methodcaller \
        gi_frame gi_code gi_yieldfrom cr_frame cr_code cr_await cr_origin ag_frame ag_code ag_await \
        tb_frame tb_next tb_lasti f_back f_builtins f_code f_globals f_locals f_trace func_globals \
        func_code get_stack get_coro get_loop mro parse_raw parse_file create_model import_string \
        model_rebuild update_forward_refs codecs ImportString make_dataclass update_wrapper modules CodeType FunctionType LambdaType ModuleType ForwardRef",
    escape_names: "eval exec compile __import__ globals locals vars dir getattr setattr delattr breakpoint \
        help exit quit copyright credits license memoryview",
};

/// Special members that may be read from any value.
pub(in crate::code_safety) const ALLOWED_DUNDERS: &str = "__name__ __doc__ __qualname__ __version__ __init__ __new__ \
    __post_init__ __repr__ __str__ __eq__ __hash__ __enter__ __exit__ __aenter__ __aexit__ __getitem__ \
    __setitem__ __delitem__ __contains__ __len__ __iter__ __next__ __missing__ __call__ __all__ __slots__";
