//! The program of a registered server: its command and arguments, and whether its code can be read before
//! it runs.

use std::convert::Infallible;

use mgp_protocol::mgp::discovery::Register;
use serde_json::json;
use url::Url;

use super::{RegistrationRefusal, RuleFinding};
use crate::servers::spec::ServerTransport;
use mgp_screening::code_safety::{CodePolicy, Declaration, Floor, MAX_CODE_BYTES, Rejection};
use mgp_screening::{
    ScreenedCall, ScreeningRejection, Validators, check_start_command, code_safety,
};

/// Bytes of the name or path of a program.
const COMMAND_BYTES_MAX: usize = 512;
/// Arguments, bytes of one, and of all: a configuration stays far below.
const ARGS_MAX: usize = 64;
const ARG_BYTES_MAX: usize = 4 << 10;
const ARGS_BYTES_MAX: usize = 32 << 10;
const URL_BYTES_MAX: usize = 2_048;

/// What a shell would do more with than put it into a word.
const SHELL_METACHARACTERS: [char; 17] = [
    ';', '&', '|', '<', '>', '`', '$', '(', ')', '{', '}', '*', '?', '!', '"', '\'', '^',
];

/// Programs that are shells, or hand their words to one.
const SHELLS: [&str; 22] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "ash",
    "fish",
    "csh",
    "tcsh",
    "busybox",
    "toybox",
    "cmd",
    "powershell",
    "pwsh",
    "npm",
    "pnpm",
    "yarn",
    "make",
    "just",
    "ssh",
    "expect",
    "tmux",
];

/// Options that may stand before a script: none of them names another one, or takes a word with it.
const INTERPRETER_OPTIONS: [(&str, &[&str]); 2] = [
    ("python", &["-u", "-B", "-E", "-s", "-I", "-O", "-OO", "-q"]),
    ("node", &["--no-warnings", "--enable-source-maps"]),
];

/// A server's code, as far as it can be read before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptSource {
    /// It came along and was judged. It is to be written where the server may read it, and its path
    /// to be the last argument.
    Inline {
        /// The language.
        language: String,
        /// All of it.
        text: String,
    },
    /// It stands in this file, as the arguments name it.
    File(String),
    /// It cannot be read.
    Unreadable(&'static str),
}

/// Judges code of a registered server.
///
/// # Errors
/// All that is wrong with it.
pub fn check_code(language: &str, text: &str, floor: &Floor) -> Result<(), Box<Rejection>> {
    let declared = Declaration {
        language: Some(language.to_owned()),
        ..Declaration::default()
    };
    let mut policy = CodePolicy::new(&declared, floor);
    // A whole server is longer than an argument: the reader's own bound, if the floor has none.
    policy.max_code_size_bytes = floor.max_code_size_bytes.or(Some(MAX_CODE_BYTES));
    policy.hint_code_bytes = policy.max_code_size_bytes.unwrap_or(MAX_CODE_BYTES);
    code_safety::check(&policy, text)
}

/// The command of a server that is a child, and nothing beside that belongs to another kind.
pub(super) fn stdio_command(ask: &Register) -> Result<&str, RegistrationRefusal> {
    let form = |text: &str| Err(RegistrationRefusal::Malformed(text.to_owned()));
    if ask.url.is_some() {
        return form("`url` belongs to transport http; a stdio server has a `command`");
    }
    match ask.command.as_deref() {
        Some(command) if !command.is_empty() => Ok(command),
        _ => form("a stdio server needs a `command`, such as python"),
    }
}

/// The address of a server that runs elsewhere.
pub(super) fn http_url(ask: &Register) -> Result<&str, RegistrationRefusal> {
    let form = |text: &str| Err(RegistrationRefusal::Malformed(text.to_owned()));
    let of_child = ask.command.is_some() || ask.code.is_some();
    if of_child || !ask.args.is_empty() || !ask.env.is_empty() {
        return form("`command`, `args`, `env` and `code` belong to transport stdio");
    }
    match ask.url.as_deref() {
        Some(url) if !url.is_empty() => Ok(url),
        _ => form("an http server needs a `url`"),
    }
}

pub(super) fn build_transport(command: &str, ask: &Register) -> ServerTransport {
    ServerTransport::Stdio {
        command: command.to_owned(),
        args: ask.args.clone(),
        env: ask.env.clone(),
        inherit_env: Vec::new(),
        cwd: None,
    }
}

/// Judges what is started.
pub(super) fn check(
    command: &str,
    ask: &Register,
    roots: &[String],
) -> Result<ScriptSource, RuleFinding> {
    check_sizes(command, &ask.args)?;
    check_plain_words(command, &ask.args)?;
    let name = program_name(command);
    if SHELLS.contains(&&*name) {
        let reason = format!("{name} is a shell, or hands its words to one");
        let hint = "start the program itself, such as python with its script";
        return Err(RuleFinding::new("shell", "/command", reason, hint));
    }
    check_shell_use(command, &name, &ask.args)?;
    // What stands behind a script is the script's own: its `-c` is not the interpreter's.
    let own = program_argument_count(&name, &ask.args);
    let (own, rest) = ask.args.split_at(own);
    for (program, words) in [(command, own), ("server", rest)] {
        let first = std::iter::once(program.to_owned());
        let words: Vec<String> = first.chain(words.iter().cloned()).collect();
        check_start_command(&words, roots).map_err(|blocked| {
            RuleFinding::new(blocked.rule, "/args", blocked.reason, blocked.hint)
        })?;
    }
    // Whatever it is given as an address must not lead inside.
    let texts = json!({ "args": ask.args, "env": ask.env });
    check_network(&texts.to_string())?;
    find_script(&name, ask)
}

/// Judges the address of a server that runs elsewhere.
pub(super) fn check_url(text: &str) -> Result<(), RuleFinding> {
    let found = |rule, reason: String, hint| Err(RuleFinding::new(rule, "/url", reason, hint));
    if text.len() > URL_BYTES_MAX {
        let reason = format!("{} bytes, over the limit of {URL_BYTES_MAX}", text.len());
        return found("size", reason, "use the plain address of the server");
    }
    if text.contains("${") {
        let reason = "an address that asks for a secret of the kernel".to_owned();
        return found(
            "secret",
            reason,
            "ask the operator to configure what needs secrets",
        );
    }
    let hint = "use https://host/path of a public server";
    // Whether its parts are what they seem comes first: readers of odd ones disagree.
    check_network(&json!({ "url": text }).to_string())?;
    let Ok(url) = Url::parse(text) else {
        return found("url", "no address that can be read".into(), hint);
    };
    if url.scheme() != "https" && url.scheme() != "http" || url.host_str().is_none() {
        return found(
            "url",
            format!("{}: is not how servers are reached", url.scheme()),
            hint,
        );
    }
    if !url.username().is_empty() || url.password().is_some() {
        return found(
            "url",
            "an address with a name or a password in it".into(),
            hint,
        );
    }
    Ok(())
}

fn check_sizes(command: &str, args: &[String]) -> Result<(), RuleFinding> {
    let found = |at: String, reason: String| {
        Err(RuleFinding::new(
            "size",
            at,
            reason,
            "let it read a file for what is longer",
        ))
    };
    let all: usize = args.iter().map(String::len).sum();
    if command.len() > COMMAND_BYTES_MAX {
        let reason = format!(
            "{} bytes, over the limit of {COMMAND_BYTES_MAX}",
            command.len()
        );
        return found("/command".into(), reason);
    }
    if args.len() > ARGS_MAX {
        let reason = format!("{} arguments, over the limit of {ARGS_MAX}", args.len());
        return found("/args".into(), reason);
    }
    if let Some(n) = args.iter().position(|arg| arg.len() > ARG_BYTES_MAX) {
        let reason = format!("{} bytes, over the limit of {ARG_BYTES_MAX}", args[n].len());
        return found(format!("/args/{n}"), reason);
    }
    if all > ARGS_BYTES_MAX {
        let reason = format!("{all} bytes in all, over the limit of {ARGS_BYTES_MAX}");
        return found("/args".into(), reason);
    }
    Ok(())
}

/// One program, by its name or path, and words without what no program needs.
fn check_plain_words(command: &str, args: &[String]) -> Result<(), RuleFinding> {
    let texts = [("/command".to_owned(), command)].into_iter();
    let args = args.iter().enumerate();
    let texts = texts.chain(args.map(|(n, arg)| (format!("/args/{n}"), &**arg)));
    for (at, text) in texts {
        if text.contains(char::is_control) {
            let reason = "a control character in a command";
            return Err(RuleFinding::new("control", at, reason, "send plain text"));
        }
        if text.contains("${") {
            let reason = "it asks for a variable of the kernel";
            let hint = "write the value itself; what needs secrets is configured by the operator";
            return Err(RuleFinding::new("secret", at, reason, hint));
        }
    }
    let meta =
        |c: &char| SHELL_METACHARACTERS.contains(c) || matches!(c, '~' | '#' | '%' | '=' | ',');
    if let Some(c) = command.chars().find(meta) {
        let reason = format!("{c} in the name of a program: a shell would read it as a sign");
        let hint = "name one program; there is no shell";
        return Err(RuleFinding::new("metacharacter", "/command", reason, hint));
    }
    if command.contains(char::is_whitespace) || command.starts_with('-') {
        let reason = "the name of a program and more";
        let hint = "put everything behind the program's name into args";
        return Err(RuleFinding::new("metacharacter", "/command", reason, hint));
    }
    if command.split(['/', '\\']).any(|part| part == "..") {
        let reason = "the path of the program leads up and out";
        return Err(RuleFinding::new(
            "traversal",
            "/command",
            reason,
            "name it by its plain path",
        ));
    }
    Ok(())
}

/// Programs that write their words into a line for a shell.
fn check_shell_use(command: &str, name: &str, args: &[String]) -> Result<(), RuleFinding> {
    let lower = command.to_ascii_lowercase();
    let scripted = lower.ends_with(".cmd") || lower.ends_with(".bat");
    if !scripted && !["npx", "bunx", "pnpx", "uvx"].contains(&name) {
        return Ok(());
    }
    let seen = |arg: &String| {
        arg.contains(SHELL_METACHARACTERS) || arg == "-c" || arg.starts_with("--call")
    };
    match args.iter().position(seen) {
        Some(n) => {
            let reason =
                format!("{name} lets a shell read its words, and this one is more than a word");
            let hint = "leave the sign out, or start the program itself";
            Err(RuleFinding::new(
                "metacharacter",
                format!("/args/{n}"),
                reason,
                hint,
            ))
        }
        None => Ok(()),
    }
}

/// By the rules for arguments of tools: one list of inner addresses for both.
fn check_network(arguments: &str) -> Result<(), RuleFinding> {
    let call = ScreenedCall {
        tool: "register",
        args: arguments,
        ..ScreenedCall::default()
    };
    let judged =
        Validators::from_names(["network_restricted"]).check::<Infallible>(&call, |_| Ok(()));
    match judged {
        Ok(()) => Ok(()),
        Err(ScreeningRejection::Blocked(blocked)) => {
            let hint = "name a public address; inner ones are for the operator to configure";
            Err(RuleFinding::new(
                blocked.rule,
                blocked.path,
                blocked.reason,
                hint,
            ))
        }
        Err(ScreeningRejection::UnsafeCode { rejection, .. }) => match rejection {},
    }
}

/// The program's name without its path, its version and its ending.
fn program_name(command: &str) -> String {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let lower = name.to_ascii_lowercase();
    let bare = [".exe", ".cmd", ".bat", ".com"]
        .iter()
        .find_map(|end| lower.strip_suffix(end));
    let bare = bare.unwrap_or(&lower);
    let unnumbered = bare.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let name = match unnumbered {
        "python" | "pythonw" | "pypy" => "python",
        "node" | "nodejs" => "node",
        _ => bare,
    };
    name.to_owned()
}

/// How many of the arguments are the program's own: with a script those up to it, else all.
fn program_argument_count(name: &str, args: &[String]) -> usize {
    let Some((_, options)) = INTERPRETER_OPTIONS
        .iter()
        .find(|(program, _)| *program == name)
    else {
        return args.len();
    };
    let script = args.iter().position(|arg| !options.contains(&&**arg));
    match script {
        Some(at) if !args[at].starts_with('-') => at + 1,
        _ => args.len(),
    }
}

/// What the program will run, as far as its words tell.
fn find_script(name: &str, ask: &Register) -> Result<ScriptSource, RuleFinding> {
    let interpreter = INTERPRETER_OPTIONS
        .iter()
        .find(|(program, _)| *program == name);
    if let Some(code) = &ask.code {
        let language = code_safety::Language::from_name(&code.language);
        let fits = match language {
            Some(code_safety::Language::Python) => name == "python",
            Some(code_safety::Language::JavaScript) => name == "node",
            None => false,
        };
        let plain =
            |(_, options): &(&str, &[&str])| ask.args.iter().all(|arg| options.contains(&&**arg));
        if !fits || !interpreter.is_some_and(plain) {
            let reason = format!("{} code is not run by this command", code.language);
            let hint = "use command python with language python, or node with javascript, and no arguments: the path of the code is added";
            return Err(RuleFinding::new("code", "/code", reason, hint));
        }
        return Ok(ScriptSource::Inline {
            language: code.language.clone(),
            text: code.text.clone(),
        });
    }
    let Some((program, options)) = interpreter else {
        return Ok(ScriptSource::Unreadable(
            "it is no script that can be read first",
        ));
    };
    let mut rest = ask.args.iter().skip_while(|arg| options.contains(&&***arg));
    match rest.next().map(String::as_str) {
        Some("-m") if *program == "python" => {
            Ok(ScriptSource::Unreadable("it is an installed module"))
        }
        Some(option) if option.starts_with('-') => {
            let reason = format!("{option} before the script: what runs then cannot be told");
            let hint = "put the script first, and options that are its own behind it";
            Err(RuleFinding::new("option", "/args", reason, hint))
        }
        Some(path) => Ok(ScriptSource::File(path.to_owned())),
        None => {
            let reason = format!("{program} without a script reads what to run from its input");
            let hint = "name the script in args, or send it as `code`";
            Err(RuleFinding::new("code", "/args", reason, hint))
        }
    }
}
