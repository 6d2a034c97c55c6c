//! The program of a registered server: its command and arguments, and whether its code can be read before
//! it runs.

use std::convert::Infallible;

use mgp_protocol::mgp::discovery::Register;
use serde_json::json;
use url::Url;

use super::{Finding, RegistrationRefusal};
use crate::servers::spec::Reach;
use mgp_screening::code_safety::{self, CodePolicy, Declaration, Floor, MAX_CODE_BYTES, Rejection};
use mgp_screening::validators::{No, ScreenedCall, Validators, judge_start};

/// Bytes of the name or path of a program.
const COMMAND_MAX: usize = 512;
/// Arguments, bytes of one, and of all: a configuration stays far below.
const ARGS_MAX: usize = 64;
const ARG_MAX: usize = 4 << 10;
const ALL_MAX: usize = 32 << 10;
const URL_MAX: usize = 2_048;

/// What a shell would do more with than put it into a word.
const META: [char; 17] = [
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
const OPTIONS: [(&str, &[&str]); 2] = [
    ("python", &["-u", "-B", "-E", "-s", "-I", "-O", "-OO", "-q"]),
    ("node", &["--no-warnings", "--enable-source-maps"]),
];

/// A server's code, as far as it can be read before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// It came along and was judged. It is to be written where the server may read it, and its path
    /// to be the last argument.
    Given {
        /// The language.
        language: String,
        /// All of it.
        text: String,
    },
    /// It stands in this file, as the arguments name it.
    File(String),
    /// It cannot be read.
    Unseen(&'static str),
}

/// Judges code of a registered server.
///
/// # Errors
/// All that is wrong with it.
pub fn judge_code(language: &str, text: &str, floor: &Floor) -> Result<(), Box<Rejection>> {
    let declared = Declaration {
        language: Some(language.to_owned()),
        ..Declaration::default()
    };
    let mut policy = CodePolicy::new(&declared, floor);
    // A whole server is longer than an argument: the reader's own bound, if the floor has none.
    policy.max_code_size_bytes = floor.max_code_size_bytes.or(Some(MAX_CODE_BYTES));
    policy.hinted_code_bytes = policy.max_code_size_bytes.unwrap_or(MAX_CODE_BYTES);
    code_safety::judge(&policy, text)
}

/// The command of a server that is a child, and nothing beside that belongs to another kind.
pub(super) fn of_stdio(ask: &Register) -> Result<&str, RegistrationRefusal> {
    let form = |text: &str| Err(RegistrationRefusal::Form(text.to_owned()));
    if ask.url.is_some() {
        return form("`url` belongs to transport http; a stdio server has a `command`");
    }
    match ask.command.as_deref() {
        Some(command) if !command.is_empty() => Ok(command),
        _ => form("a stdio server needs a `command`, such as python"),
    }
}

/// The address of a server that runs elsewhere.
pub(super) fn of_http(ask: &Register) -> Result<&str, RegistrationRefusal> {
    let form = |text: &str| Err(RegistrationRefusal::Form(text.to_owned()));
    let of_child = ask.command.is_some() || ask.code.is_some();
    if of_child || !ask.args.is_empty() || !ask.env.is_empty() {
        return form("`command`, `args`, `env` and `code` belong to transport stdio");
    }
    match ask.url.as_deref() {
        Some(url) if !url.is_empty() => Ok(url),
        _ => form("an http server needs a `url`"),
    }
}

pub(super) fn reach(command: &str, ask: &Register) -> Reach {
    Reach::Stdio {
        command: command.to_owned(),
        args: ask.args.clone(),
        env: ask.env.clone(),
        inherit_env: Vec::new(),
        cwd: None,
    }
}

/// Judges what is started.
pub(super) fn judge(command: &str, ask: &Register, roots: &[String]) -> Result<Script, Finding> {
    sizes(command, &ask.args)?;
    plain(command, &ask.args)?;
    let name = name_of(command);
    if SHELLS.contains(&&*name) {
        let reason = format!("{name} is a shell, or hands its words to one");
        let hint = "start the program itself, such as python with its script";
        return Err(Finding::new("shell", "/command", reason, hint));
    }
    hands_over(command, &name, &ask.args)?;
    // What stands behind a script is the script's own: its `-c` is not the interpreter's.
    let own = own_words(&name, &ask.args);
    let (own, rest) = ask.args.split_at(own);
    for (program, words) in [(command, own), ("server", rest)] {
        let first = std::iter::once(program.to_owned());
        let words: Vec<String> = first.chain(words.iter().cloned()).collect();
        judge_start(&words, roots)
            .map_err(|blocked| Finding::new(blocked.rule, "/args", blocked.reason, blocked.hint))?;
    }
    // Whatever it is given as an address must not lead inside.
    let texts = json!({ "args": ask.args, "env": ask.env });
    network(&texts.to_string())?;
    script(&name, ask)
}

/// Judges the address of a server that runs elsewhere.
pub(super) fn judge_url(text: &str) -> Result<(), Finding> {
    let found = |rule, reason: String, hint| Err(Finding::new(rule, "/url", reason, hint));
    if text.len() > URL_MAX {
        let reason = format!("{} bytes, over the limit of {URL_MAX}", text.len());
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
    network(&json!({ "url": text }).to_string())?;
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

fn sizes(command: &str, args: &[String]) -> Result<(), Finding> {
    let found = |at: String, reason: String| {
        Err(Finding::new(
            "size",
            at,
            reason,
            "let it read a file for what is longer",
        ))
    };
    let all: usize = args.iter().map(String::len).sum();
    if command.len() > COMMAND_MAX {
        let reason = format!("{} bytes, over the limit of {COMMAND_MAX}", command.len());
        return found("/command".into(), reason);
    }
    if args.len() > ARGS_MAX {
        let reason = format!("{} arguments, over the limit of {ARGS_MAX}", args.len());
        return found("/args".into(), reason);
    }
    if let Some(n) = args.iter().position(|arg| arg.len() > ARG_MAX) {
        let reason = format!("{} bytes, over the limit of {ARG_MAX}", args[n].len());
        return found(format!("/args/{n}"), reason);
    }
    if all > ALL_MAX {
        let reason = format!("{all} bytes in all, over the limit of {ALL_MAX}");
        return found("/args".into(), reason);
    }
    Ok(())
}

/// One program, by its name or path, and words without what no program needs.
fn plain(command: &str, args: &[String]) -> Result<(), Finding> {
    let texts = [("/command".to_owned(), command)].into_iter();
    let args = args.iter().enumerate();
    let texts = texts.chain(args.map(|(n, arg)| (format!("/args/{n}"), &**arg)));
    for (at, text) in texts {
        if text.contains(char::is_control) {
            let reason = "a control character in a command";
            return Err(Finding::new("control", at, reason, "send plain text"));
        }
        if text.contains("${") {
            let reason = "it asks for a variable of the kernel";
            let hint = "write the value itself; what needs secrets is configured by the operator";
            return Err(Finding::new("secret", at, reason, hint));
        }
    }
    let meta = |c: &char| META.contains(c) || matches!(c, '~' | '#' | '%' | '=' | ',');
    if let Some(c) = command.chars().find(meta) {
        let reason = format!("{c} in the name of a program: a shell would read it as a sign");
        let hint = "name one program; there is no shell";
        return Err(Finding::new("metacharacter", "/command", reason, hint));
    }
    if command.contains(char::is_whitespace) || command.starts_with('-') {
        let reason = "the name of a program and more";
        let hint = "put everything behind the program's name into args";
        return Err(Finding::new("metacharacter", "/command", reason, hint));
    }
    if command.split(['/', '\\']).any(|part| part == "..") {
        let reason = "the path of the program leads up and out";
        return Err(Finding::new(
            "traversal",
            "/command",
            reason,
            "name it by its plain path",
        ));
    }
    Ok(())
}

/// Programs that write their words into a line for a shell.
fn hands_over(command: &str, name: &str, args: &[String]) -> Result<(), Finding> {
    let lower = command.to_ascii_lowercase();
    let scripted = lower.ends_with(".cmd") || lower.ends_with(".bat");
    if !scripted && !["npx", "bunx", "pnpx", "uvx"].contains(&name) {
        return Ok(());
    }
    let seen = |arg: &String| arg.contains(META) || arg == "-c" || arg.starts_with("--call");
    match args.iter().position(seen) {
        Some(n) => {
            let reason =
                format!("{name} lets a shell read its words, and this one is more than a word");
            let hint = "leave the sign out, or start the program itself";
            Err(Finding::new(
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
fn network(arguments: &str) -> Result<(), Finding> {
    let call = ScreenedCall {
        tool: "register",
        args: arguments,
        ..ScreenedCall::default()
    };
    let judged = Validators::of(["network_restricted"]).judge::<Infallible>(&call, |_| Ok(()));
    match judged {
        Ok(()) => Ok(()),
        Err(No::Blocked(blocked)) => {
            let hint = "name a public address; inner ones are for the operator to configure";
            Err(Finding::new(
                blocked.rule,
                blocked.path,
                blocked.reason,
                hint,
            ))
        }
        Err(No::Unsafe { rejection, .. }) => match rejection {},
    }
}

/// The program's name without its path, its version and its ending.
fn name_of(command: &str) -> String {
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
fn own_words(name: &str, args: &[String]) -> usize {
    let Some((_, options)) = OPTIONS.iter().find(|(program, _)| *program == name) else {
        return args.len();
    };
    let script = args.iter().position(|arg| !options.contains(&&**arg));
    match script {
        Some(at) if !args[at].starts_with('-') => at + 1,
        _ => args.len(),
    }
}

/// What the program will run, as far as its words tell.
fn script(name: &str, ask: &Register) -> Result<Script, Finding> {
    let interpreter = OPTIONS.iter().find(|(program, _)| *program == name);
    if let Some(code) = &ask.code {
        let language = code_safety::Language::named(&code.language);
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
            return Err(Finding::new("code", "/code", reason, hint));
        }
        return Ok(Script::Given {
            language: code.language.clone(),
            text: code.text.clone(),
        });
    }
    let Some((program, options)) = interpreter else {
        return Ok(Script::Unseen("it is no script that can be read first"));
    };
    let mut rest = ask.args.iter().skip_while(|arg| options.contains(&&***arg));
    match rest.next().map(String::as_str) {
        Some("-m") if *program == "python" => Ok(Script::Unseen("it is an installed module")),
        Some(option) if option.starts_with('-') => {
            let reason = format!("{option} before the script: what runs then cannot be told");
            let hint = "put the script first, and options that are its own behind it";
            Err(Finding::new("option", "/args", reason, hint))
        }
        Some(path) => Ok(Script::File(path.to_owned())),
        None => {
            let reason = format!("{program} without a script reads what to run from its input");
            let hint = "name the script in args, or send it as `code`";
            Err(Finding::new("code", "/args", reason, hint))
        }
    }
}
