//! The variables a registered server is started with.

use std::collections::BTreeMap;

use super::RuleFinding;
use mgp_screening::can_select_code;

/// Most variables, and bytes of a name, of a value, and of all together: a process can be started with
/// far more, a configuration needs far less.
const VARIABLES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 128;
const VALUE_BYTES_MAX: usize = 8 << 10;
const TOTAL_BYTES_MAX: usize = 64 << 10;

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
const RESERVED_NAMES: [&str; 62] = [
    "SHELL", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "CDPATH", "EDITOR", "VISUAL", "PAGER", "MANPAGER",
    "LESSOPEN", "LESSCLOSE", "BROWSER", "HOME", "USER", "LOGNAME", "PWD", "TMPDIR", "TEMP", "TMP",
    "CLASSPATH", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "GODEBUG", "GOFLAGS",
    "GOPROXY", "ERL_FLAGS", "ERL_AFLAGS", "TCLLIBPATH", "TERMCAP", "GCONV_PATH", "GLIBC_TUNABLES",
    "NLSPATH", "LOCPATH", "TZDIR", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF",
    "SSH_AUTH_SOCK", "SSH_ASKPASS", "SVN_SSH", "RSYNC_RSH", "GNUPGHOME", "NETRC", "WGETRC", "LDAPCONF",
    "LDAPRC", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG", "PGPASSFILE", "PGSERVICEFILE", "PGSYSCONFDIR", "MYSQL_HOME", "TNS_ADMIN", "ODBCINI",
    "ODBCSYSINI", "HTTPLIB2_CA_CERTS",
];

pub(super) fn check(env: &BTreeMap<String, String>) -> Result<(), RuleFinding> {
    if env.len() > VARIABLES_MAX {
        let reason = format!("{} variables, over the limit of {VARIABLES_MAX}", env.len());
        return Err(RuleFinding::new(
            "size",
            "/env",
            reason,
            "pass what it needs as arguments",
        ));
    }
    let all: usize = env
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if all > TOTAL_BYTES_MAX {
        let reason = format!("{all} bytes, over the limit of {TOTAL_BYTES_MAX}");
        return Err(RuleFinding::new(
            "size",
            "/env",
            reason,
            "let it read a file",
        ));
    }
    for (name, value) in env {
        check_name(name)?;
        check_value(name, value)?;
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), RuleFinding> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
        let reason = "the name of a variable is made of letters, digits and _".to_owned();
        return Err(RuleFinding::new(
            "variable",
            "/env",
            reason,
            "use a plain name",
        ));
    }
    // Some systems, and some programs on any, read names in any letters.
    let upper = name.to_ascii_uppercase();
    let family = RESERVED_PREFIXES
        .iter()
        .any(|family| upper.starts_with(family));
    let ending = RESERVED_SUFFIXES
        .iter()
        .any(|ending| upper.ends_with(ending));
    let named = ending || RESERVED_NAMES.contains(&&*upper) || can_select_code(&upper);
    if named || family && !ALLOWED_NAMES.contains(&&*upper) {
        let reason = format!("{name} decides which code runs, or what it reaches");
        let hint = "leave this variable out; the operator can set it";
        return Err(RuleFinding::new(
            "environment",
            pointer_to(name),
            reason,
            hint,
        ));
    }
    Ok(())
}

/// Values are told to nobody, and so not to the one who gets the refusal either.
fn check_value(name: &str, value: &str) -> Result<(), RuleFinding> {
    let found =
        |rule, reason: &str, hint| Err(RuleFinding::new(rule, pointer_to(name), reason, hint));
    if value.len() > VALUE_BYTES_MAX {
        let reason = format!(
            "a value of {} bytes, over the limit of {VALUE_BYTES_MAX}",
            value.len()
        );
        return found("size", &reason, "let it read a file");
    }
    if value.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
        return found(
            "control",
            "a value with a control character",
            "send plain text",
        );
    }
    let reference = value.contains("${")
        || ["file:", "keyring:", "secret:"]
            .iter()
            .any(|r| value.starts_with(r));
    if reference {
        let reason = "a value that asks for a secret of the kernel";
        return found(
            "secret",
            reason,
            "ask the operator to configure what needs secrets",
        );
    }
    Ok(())
}

fn pointer_to(name: &str) -> String {
    format!("/env/{name}")
}
