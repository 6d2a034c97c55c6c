//! The names of variables by which programs are told what to run, what to trust and where to look.

/// Variables that decide which code a program runs, wherever they stand.
const CODE_NAMES: [&str; 15] = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "BASH_ENV",
    "PATH",
    "IFS",
    "PROMPT_COMMAND",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "NODE_OPTIONS",
    "PERL5OPT",
    "RUBYOPT",
    "GIT_SSH_COMMAND",
    "GIT_EXTERNAL_DIFF",
];

/// Beginnings of names by which loaders, interpreters, package runners, libraries for encrypted
/// connections and the kernel are told what to run, what to trust, where to fetch it and where to write.
#[rustfmt::skip]
const RESERVED_PREFIXES: [&str; 46] = [
    "LD_", "DYLD_", "BASH_FUNC_", "MGP_", "MCP_CONFIG", "NPM_CONFIG_", "YARN_", "PIP_", "UV_", "GIT_",
    "PYTHON", "NODE_", "PERL5", "RUBY", "JAVA_", "DENO_", "BUN_", "DOCKER_", "DOTNET_", "CORECLR_",
    "COR_", "LUA_", "GEM_", "BUNDLE_", "CARGO_", "RUSTC", "RUSTUP_", "PHP", "JULIA_", "R_PROFILE",
    "OPENSSL_", "SSL_", "GNUTLS_", "NSS_", "P11_KIT_", "KRB5", "GSS_", "CURL_", "MALLOC_", "GCOV_",
    "XDG_", "QT_", "GTK_", "GIO_", "TERMINFO", "PKCS11_",
];
/// Endings of names that mean the same with any beginning: what a connection goes through, whom it
/// trusts and where its keys are written; where a checker or a profiler writes what it saw.
const RESERVED_SUFFIXES: [&str; 8] = [
    "_PROXY",
    "_CA_BUNDLE",
    "_CA_CERTS",
    "_CA_FILE",
    "KEYLOGFILE",
    "SAN_OPTIONS",
    "_PROFILE_FILE",
    "_ROOTS_FILE_PATH",
];
/// Of these families, what changes no program.
#[rustfmt::skip]
const ALLOWED_NAMES: [&str; 13] = [
    "NODE_ENV", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "PYTHONUTF8",
    "PYTHONHASHSEED", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL", "GIT_TERMINAL_PROMPT", "PIP_NO_COLOR", "UV_NO_PROGRESS",
];
/// Names alone: what starts programs, where files and secrets are looked for, and through whom all
/// connections go.
#[rustfmt::skip]
const RESERVED_NAMES: [&str; 79] = [
    "SHELL", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "CDPATH", "EDITOR", "VISUAL", "PAGER", "MANPAGER",
    "LESSOPEN", "LESSCLOSE", "BROWSER", "HOME", "USER", "LOGNAME", "PWD", "TMPDIR", "TEMP", "TMP",
    "CLASSPATH", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "GODEBUG", "GOFLAGS",
    "GOPROXY", "ERL_FLAGS", "ERL_AFLAGS", "TCLLIBPATH", "TERMCAP", "GCONV_PATH", "GLIBC_TUNABLES",
    "NLSPATH", "LOCPATH", "TZDIR", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF",
    "SSH_AUTH_SOCK", "SSH_ASKPASS", "SVN_SSH", "RSYNC_RSH", "GNUPGHOME", "NETRC", "WGETRC", "LDAPCONF",
    "LDAPRC", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG", "PGPASSFILE", "PGSERVICEFILE", "PGSYSCONFDIR", "MYSQL_HOME", "TNS_ADMIN", "ODBCINI",
    "ODBCSYSINI", "HTTPLIB2_CA_CERTS", "MAKEFLAGS", "MAKEFILES", "GNUMAKEFLAGS", "PYTEST_PLUGINS",
    "PYTEST_ADDOPTS", "RIPGREP_CONFIG_PATH", "CMAKE_TOOLCHAIN_FILE", "TAR_OPTIONS", "CC", "CXX", "AR", "LD",
    "JAVA_TOOL_OPTIONS", "JDK_HOME", "JAVA_HOME", "ANT_OPTS", "SBT_OPTS",
];

/// True if a variable of this name decides which code a program runs, and its name has no other meaning.
pub(crate) fn selects_code(name: &str) -> bool {
    CODE_NAMES.contains(&name)
}

/// True if a variable of this name, in any case, decides which code a program runs, or what it reaches.
#[must_use]
pub fn is_reserved_variable(name: &str) -> bool {
    // Some systems, and some programs on any, read names in any letters.
    let upper = name.to_ascii_uppercase();
    let has_family = RESERVED_PREFIXES
        .iter()
        .any(|family| upper.starts_with(family));
    let has_ending = RESERVED_SUFFIXES
        .iter()
        .any(|ending| upper.ends_with(ending));
    let is_named = RESERVED_NAMES.contains(&&*upper) || selects_code(&upper);
    is_named || has_ending || has_family && !ALLOWED_NAMES.contains(&&*upper)
}
