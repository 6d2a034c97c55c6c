//! Diagnoses a slow or failed start for people: what the program may be doing, and which line of its output explains
//! its exit.

/// Programs that download what they run, at least the first time.
const DOWNLOADERS: [&str; 10] = [
    "bun", "bunx", "deno", "docker", "npm", "npx", "pipx", "podman", "uv", "uvx",
];

/// Lowercase words that mark error messages.
const ERROR_WORDS: [&str; 18] = [
    "error",
    "err!",
    "exception",
    "panic",
    "fatal",
    "failed",
    "failure",
    "cannot",
    "can't",
    "could not",
    "unable",
    "no such",
    "not found",
    "not set",
    "missing",
    "required",
    "denied",
    "refused",
];

/// Most characters of a displayed line.
pub(crate) const LINE_CHARS_MAX: usize = 200;

/// What a program that has not answered yet may be doing; `command` is a name or a path.
#[must_use]
pub fn describe_activity(command: &str) -> String {
    let name = command.rsplit('/').next().unwrap_or(command);
    if DOWNLOADERS.contains(&name) {
        format!("{name} downloads or starts it")
    } else {
        format!("{name} has not answered yet")
    }
}

/// The line that best explains the end of a program, from its last lines (oldest first): the last of those
/// with the most words of [`ERROR_WORDS`]. Indented lines belong to the line before (stack frames, advice) and
/// count only if no other says anything.
#[must_use]
pub fn find_error_line<'l>(lines: &[&'l str]) -> Option<&'l str> {
    let non_empty = || lines.iter().copied().filter(|line| !line.trim().is_empty());
    let is_unindented = |line: &&str| !line.starts_with(char::is_whitespace);
    let worst = |lines: &mut dyn Iterator<Item = &'l str>| {
        let worst = lines.max_by_key(|line| count_error_words(line));
        worst.filter(|line| count_error_words(line) > 0)
    };
    worst(&mut non_empty().filter(is_unindented))
        .or_else(|| worst(&mut non_empty()))
        .or_else(|| non_empty().rfind(is_unindented))
        .or_else(|| non_empty().next_back())
        .map(str::trim)
}

fn count_error_words(line: &str) -> usize {
    let line = line.to_lowercase();
    ERROR_WORDS
        .iter()
        .filter(|word| line.contains(**word))
        .count()
}

/// A line for display: its first [`LINE_CHARS_MAX`] characters.
#[must_use]
pub fn truncate_line(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS_MAX) {
        None => line.to_owned(),
        Some((cut, _)) => format!("{}…", line[..cut].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real output of programs that failed to start, and the line that explains it.
    const OUTPUTS: [(&str, &str); 10] = [
        (
            "Traceback (most recent call last):\n  File \"/srv/errors.py\", line 1, in <module>\n    import fastmcp\nModuleNotFoundError: No module named 'fastmcp'",
            "ModuleNotFoundError: No module named 'fastmcp'",
        ),
        (
            "Traceback (most recent call last):\n  File \"s.py\", line 2, in <module>\nKeyError: 'A'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"s.py\", line 4, in <module>\nRuntimeError: A is no key",
            "RuntimeError: A is no key",
        ),
        (
            "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module '/srv/serve.js'\n    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)\n    at Error.captureStackTrace {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v20.19.0",
            "Error: Cannot find module '/srv/serve.js'",
        ),
        (
            "npm error code E404\nnpm error 404 Not Found - GET https://example.org/@acme%2fnone - Not found\nnpm error 404\nnpm error 404  '@acme/none@*' is not in this registry.\nnpm error 404\nnpm error 404 Note that you can also install from a\nnpm error 404 tarball, folder, http url, or git folder.\nnpm error A complete log of this run can be found in: /home/me/.npm/_logs/x-debug-0.log",
            "npm error 404 Not Found - GET https://example.org/@acme%2fnone - Not found",
        ),
        (
            "npm ERR! code ENOTFOUND\nnpm ERR! network request to https://example.org/none failed, reason: getaddrinfo ENOTFOUND example.org\nnpm ERR! network This is a problem related to network connectivity.\nnpm ERR! A complete log of this run can be found in: /home/me/x.log",
            "npm ERR! network request to https://example.org/none failed, reason: getaddrinfo ENOTFOUND example.org",
        ),
        (
            "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because none was not found in the package registry and you require none, we can conclude that your requirements are unsatisfiable.",
            "╰─▶ Because none was not found in the package registry and you require none, we can conclude that your requirements are unsatisfiable.",
        ),
        (
            "thread 'main' panicked at src/main.rs:2:5:\nthe folder: Os { code: 2, kind: NotFound, message: \"No such file or directory\" }\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
            "the folder: Os { code: 2, kind: NotFound, message: \"No such file or directory\" }",
        ),
        (
            "docker: Error response from daemon: pull access denied for none.\nSee 'docker run --help'.",
            "docker: Error response from daemon: pull access denied for none.",
        ),
        (
            "Usage: mcp-server-filesystem <folder>\n\n",
            "Usage: mcp-server-filesystem <folder>",
        ),
        ("  \n", ""),
    ];

    #[test]
    fn the_line_that_explains_an_exit_is_found() {
        for (output, line) in OUTPUTS {
            let lines: Vec<&str> = output.lines().collect();
            assert_eq!(
                find_error_line(&lines).unwrap_or_default(),
                line,
                "{output}"
            );
        }
    }

    #[test]
    fn downloaders_are_recognized() {
        assert_eq!(
            describe_activity("/usr/bin/npx"),
            "npx downloads or starts it"
        );
        assert_eq!(describe_activity("python3"), "python3 has not answered yet");
    }

    #[test]
    fn a_long_line_is_truncated() {
        assert_eq!(truncate_line("short"), "short");
        let cut = truncate_line(&"ä".repeat(LINE_CHARS_MAX + 1));
        assert_eq!(cut.chars().count(), LINE_CHARS_MAX + 1);
        assert!(cut.ends_with('…'));
    }
}
