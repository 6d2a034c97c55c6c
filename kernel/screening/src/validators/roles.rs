//! The role of an argument, derived from the words of its name.

/// The most likely meaning of a text for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A command line, or the program of one.
    Command,
    /// The words after a program.
    Args,
    Path,
    Url,
    /// Only a host name.
    Host,
    Sql,
    Code,
    /// Content; never run, opened or connected to.
    Prose,
    /// An HTTP method.
    Method,
    /// The mode of opening a file.
    Mode,
    /// An action, in one word.
    Action,
    Other,
}

/// Splits a name in any style into lower-case words: `repoURL_list` has `repo`, `url`, `list`.
pub(super) fn split_words(name: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut word = String::new();
    let chars: Vec<char> = super::normalization::normalize(name).chars().collect();
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|b| chars[b]);
        let after = chars.get(at + 1);
        let starts = c.is_uppercase()
            && (before.is_some_and(char::is_lowercase)
                || before.is_some_and(char::is_uppercase)
                    && after.is_some_and(|a| a.is_lowercase()));
        if starts || !c.is_alphanumeric() {
            out.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    out.extend((!word.is_empty()).then_some(word));
    out
}

/// Words before `code` that make it a number, not a program: `zip_code`, `currencyCode`.
const IS_A_NUMBER: [&str; 18] = [
    "area", "bar", "color", "country", "currency", "discount", "error", "exit", "iso", "lang",
    "language", "postal", "post", "promo", "qr", "state", "status", "zip",
];

/// The role by the last meaningful word, because it names the object: `file_path`, `hostUrl`. Capitals
/// separate words, but a server that ignores case reads `commanD` as `command`.
pub(super) fn role_for_key(key: &str) -> Role {
    // Most keys are one word in lower case.
    if key.bytes().all(|c| c.is_ascii_lowercase()) {
        return role_for_word(key);
    }
    let small = super::normalization::normalize(key).to_lowercase();
    let uncapped = role_for_words(&split_words(&small));
    if uncapped != Role::Other {
        return uncapped;
    }
    role_for_words(&split_words(key))
}

fn role_for_words(words: &[String]) -> Role {
    if let [.., what, last] = words
        && last == "code"
        && IS_A_NUMBER.contains(&what.as_str())
    {
        return Role::Other;
    }
    // `ip_version`
    if words.last().is_some_and(|last| last == "version") {
        return Role::Other;
    }
    let known = words.iter().rev().map(|w| role_for_word(w));
    known
        .into_iter()
        .find(|role| *role != Role::Other)
        .unwrap_or(Role::Other)
}

fn role_for_word(word: &str) -> Role {
    let one = role_for_singular(word);
    match (one, word.strip_suffix('s')) {
        (Role::Other, Some(singular)) => role_for_singular(singular),
        (role, _) => role,
    }
}

fn role_for_singular(word: &str) -> Role {
    match word {
        "command" | "cmd" | "commandline" | "cmdline" | "shell" | "bash" | "exec"
        | "executable" | "program" | "powershell" | "cmdstring" => Role::Command,
        "args" | "arguments" | "argument" | "arg" | "argv" | "params" | "parameter" | "flag" => {
            Role::Args
        }
        "path" | "file" | "filename" | "filepath" | "dir" | "directory" | "folder" | "cwd"
        | "workdir" | "dest" | "destination" | "dirname" | "pathname" | "src" | "dst"
        | "outfile" | "infile" | "glob" | "location" => Role::Path,
        "url" | "uri" | "href" | "link" | "endpoint" | "webhook" | "proxy" | "baseurl"
        | "imageurl" | "callback" | "website" | "site" | "feed" => Role::Url,
        "host" | "hostname" | "ip" | "ipaddress" | "domain" | "fqdn" => Role::Host,
        "sql" | "statement" | "stmt" => Role::Sql,
        "code" | "source" | "script" | "snippet" | "sourcecode" | "python" | "javascript" => {
            Role::Code
        }
        "content" | "stdin" | "text" | "body" | "description" | "prompt" | "markdown" | "html"
        | "diff" | "patch" | "comment" | "note" | "data" | "summary" | "explanation"
        | "documentation" => Role::Prose,
        "method" => Role::Method,
        "mode" => Role::Mode,
        "action" | "operation" | "op" | "verb" => Role::Action,
        _ => Role::Other,
    }
}

/// True if a tool of this name runs command lines.
pub(super) fn is_command_name(words: &[String]) -> bool {
    let has = |set: &[&str]| words.iter().any(|w| set.contains(&w.as_str()));
    has(&[
        "shell",
        "bash",
        "terminal",
        "command",
        "commands",
        "cmd",
        "powershell",
        "exec",
        "zsh",
        "subprocess",
        "cli",
        "sh",
    ]) || words == ["execute"]
        || words == ["run"]
        || words == ["spawn"]
        || has(&["run", "execute", "start", "spawn"]) && has(&["process", "program", "script"])
}

/// True if a tool of this name runs the code in its arguments.
pub(super) fn is_code_name(words: &[String]) -> bool {
    let has = |set: &[&str]| words.iter().any(|w| set.contains(&w.as_str()));
    let runs = has(&[
        "run",
        "execute",
        "exec",
        "eval",
        "evaluate",
        "interpret",
        "interpreter",
    ]);
    let code = has(&[
        "code",
        "python",
        "javascript",
        "js",
        "py",
        "node",
        "snippet",
        "notebook",
        "ipython",
        "repl",
    ]);
    runs && code || words == ["eval"] || words == ["python"] || words == ["repl"]
}

/// True if a tool of this name uses a database.
pub(super) fn is_database_name(words: &[String]) -> bool {
    let has = |set: &[&str]| words.iter().any(|w| set.contains(&w.as_str()));
    has(&[
        "sql",
        "db",
        "database",
        "postgres",
        "mysql",
        "sqlite",
        "bigquery",
        "snowflake",
        "duckdb",
        "clickhouse",
        "mariadb",
        "mssql",
        "oracle",
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_determines_the_role() {
        assert_eq!(split_words("repoURL_list"), ["repo", "url", "list"]);
        for (key, role) in [
            ("file_path", Role::Path),
            ("filePaths", Role::Path),
            ("targetURL", Role::Url),
            ("command_line", Role::Command),
            ("args", Role::Args),
            ("host", Role::Host),
            ("city", Role::Other),
            ("code", Role::Code),
            ("sourceCode", Role::Code),
            ("country_code", Role::Other),
            ("content", Role::Prose),
            ("commanD", Role::Command),
            ("scrIpT", Role::Code),
            ("run_COMMAnd", Role::Command),
            ("\u{17f}ql", Role::Sql),
            ("currencyCode", Role::Other),
            ("ip_version", Role::Other),
        ] {
            assert_eq!(role_for_key(key), role, "{key}");
        }
    }

    /// MGP-272: tools of servers without MGP are classified by their names.
    #[test]
    fn running_tools_are_classified_by_name() {
        for name in ["execute_command", "runCommand", "bash", "shell_exec", "run"] {
            assert!(is_command_name(&split_words(name)), "{name}");
        }
        for name in ["read_file", "search", "list_runs", "describe_table"] {
            assert!(!is_command_name(&split_words(name)), "{name}");
        }
        assert!(is_code_name(&split_words("run_python_code")));
        assert!(!is_code_name(&split_words("search_code")));
    }
}
