//! `readonly`: nothing that writes (MGP §4.5). Commands are checked by an allow list; an unknown program
//! may write.

use std::collections::HashSet;

use super::arguments::{ArgumentKind, CallArguments, Leaf};
use super::programs::CommandPurpose;
use super::roles::{self, Role};
use super::{
    ArgumentFinding, BlockedArgument, ScreenedCall, Validator, command_rules, commands,
    normalization, patterns, split_commands, sql,
};

const HINT: &str = "this tool is limited to reading; ask for what is there without changing it";

/// First words of the names of tools that write.
const WRITING: [&str; 49] = [
    "rm",
    "mv",
    "cp",
    "del",
    "touch",
    "write",
    "create",
    "delete",
    "remove",
    "update",
    "insert",
    "drop",
    "truncate",
    "edit",
    "move",
    "rename",
    "copy",
    "append",
    "set",
    "put",
    "post",
    "patch",
    "upload",
    "save",
    "store",
    "add",
    "modify",
    "replace",
    "upsert",
    "merge",
    "push",
    "commit",
    "publish",
    "deploy",
    "install",
    "uninstall",
    "send",
    "kill",
    "purge",
    "wipe",
    "destroy",
    "erase",
    "overwrite",
    "mkdir",
    "rmdir",
    "unlink",
    "revoke",
    "grant",
    "reset",
];

pub(super) fn check(call: &ScreenedCall<'_>, args: &CallArguments) -> Result<(), BlockedArgument> {
    if let Some(finding) = check_tool(call) {
        return Err(BlockedArgument::new(
            Validator::Readonly,
            "",
            call.tool,
            finding,
        ));
    }
    let words = roles::split_words(call.tool);
    let runs = roles::is_command_name(&words);
    let context = Context {
        args,
        database: roles::is_database_name(&words),
        queries: words.iter().any(|word| word == "query"),
        searches: is_search_of_texts(&words),
        runs,
        commanded: split_commands::commanded_objects(args),
    };
    for leaf in &args.leaves {
        if let Some(finding) = context.check(leaf) {
            return Err(BlockedArgument::for_leaf(
                Validator::Readonly,
                leaf,
                finding,
            ));
        }
    }
    let rules = split_commands::Rules {
        validator: Validator::Readonly,
        tool: call.tool,
        check_words: |head: &Leaf, words: &[String]| {
            if sql::is_statement(&head.text) {
                sql::check(&words.join(" "))
            } else {
                check_argv(words)
            }
        },
        check_line: check_command,
    };
    split_commands::check(&rules, args, runs)
}

/// Checks the server's declaration and the tool's name. Network access is no write; all other effects are.
fn check_tool(call: &ScreenedCall<'_>) -> Option<ArgumentFinding> {
    if let Some(effect) = call.side_effects.iter().find(|e| *e != "network") {
        return write_finding(
            "side_effect",
            &format!("the tool declares an effect on {effect}"),
        );
    }
    if call.read_only_hint == Some(false) {
        return write_finding(
            "annotation",
            "the tool says of itself that it does not only read",
        );
    }
    let first = roles::split_words(call.tool).into_iter().next()?;
    WRITING.contains(&first.as_str()).then(|| {
        ArgumentFinding::new(
            "tool_name",
            format!("by its name the tool is there to {first}"),
            HINT,
        )
    })
}

fn write_finding(rule: &'static str, reason: &str) -> Option<ArgumentFinding> {
    Some(ArgumentFinding::new(rule, reason, HINT))
}

/// What a call says about each of its texts.
struct Context<'a> {
    args: &'a CallArguments,
    /// Its tool is one of a database.
    database: bool,
    queries: bool,
    searches: bool,
    runs: bool,
    commanded: HashSet<&'a str>,
}

impl Context<'_> {
    fn check(&self, leaf: &Leaf) -> Option<ArgumentFinding> {
        if matches!(leaf.kind, ArgumentKind::Number | ArgumentKind::Key) {
            return None;
        }
        let role = self.role(leaf);
        normalization::with_normalized(&leaf.text)
            .iter()
            .find_map(|text| self.check_text(text, leaf, role))
    }

    fn role(&self, leaf: &Leaf) -> Role {
        let open = leaf.role == Role::Other;
        if self.database && (open || leaf.role == Role::Prose) {
            Role::Sql
        } else if self.runs && (open || leaf.role == Role::Code) {
            Role::Command
        } else {
            leaf.role
        }
    }

    fn check_text(&self, text: &str, leaf: &Leaf, role: Role) -> Option<ArgumentFinding> {
        let is_named = leaf.role == role;
        match role {
            Role::Sql => sql::check(text),
            Role::Command if leaf.kind == ArgumentKind::Element => check_word(text),
            // Some databases call their statements commands.
            Role::Command if self.database || sql::is_statement(text) => sql::check(text),
            Role::Command if split_commands::is_shell_of_command(self.args, leaf) => None,
            Role::Command if is_named && split_commands::has_words(self.args, leaf, self.runs) => {
                commands::split_words(text).err()
            }
            // Beside a command, few texts are another one: `timeout`, `encoding`.
            Role::Command
                if leaf.role == Role::Other
                    && split_commands::is_within(leaf, &self.commanded)
                    && !split_commands::is_listed(leaf) =>
            {
                check_word(text)
            }
            Role::Command => check_command(text),
            Role::Method => check_method(text),
            Role::Mode => check_mode(text),
            Role::Action => check_action(text),
            Role::Path | Role::Url | Role::Host => None,
            Role::Args if self.runs => check_word(text).or_else(|| check_other(text, role)),
            Role::Prose if self.queries && sql::is_statement(text) => sql::check(text),
            // A statement is what is looked for.
            Role::Other if self.searches => check_mutation(text),
            Role::Args | Role::Code | Role::Prose | Role::Other => check_other(text, role),
        }
    }
}

/// Checks one word of a command: a shell may be started for it.
fn check_word(text: &str) -> Option<ArgumentFinding> {
    split_commands::check_separator(text).or_else(|| patterns::check(text))
}

fn check_other(text: &str, role: Role) -> Option<ArgumentFinding> {
    let is_sql = || role != Role::Prose && sql::is_statement(text);
    check_mutation(text).or_else(|| is_sql().then(|| sql::check(text))?)
}

/// True for `search_code` and its like; what only says `search` may be a database.
fn is_search_of_texts(words: &[String]) -> bool {
    let has = |set: &[&str]| words.iter().any(|word| set.contains(&&**word));
    let texts = [
        "code",
        "docs",
        "documentation",
        "files",
        "issues",
        "messages",
        "web",
    ];
    has(&["search"]) && has(&texts)
}

fn check_mutation(text: &str) -> Option<ArgumentFinding> {
    is_mutation(text)
        .then(|| write_finding("mutation", "the GraphQL text is a mutation"))
        .flatten()
}

fn is_mutation(text: &str) -> bool {
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default().trim());
    let whole: String = lines.collect::<Vec<_>>().join(" ");
    // One text may have several operations; each begins outside of braces.
    let mut depth = 0_u32;
    let mut outside = String::new();
    for c in whole.chars() {
        match c {
            '{' | '(' => depth += 1,
            '}' | ')' => {
                depth = depth.saturating_sub(1);
                outside.push('\n');
            }
            c if depth == 0 => outside.push(c),
            _ => {}
        }
    }
    whole.contains('{')
        && outside.lines().any(|l| {
            let mut words = l.split_whitespace();
            let named = words.next() == Some("mutation");
            let rest: Vec<&str> = words.collect();
            named && (rest.len() <= 1 || rest.iter().any(|w| w.starts_with('@')))
        })
}

fn check_method(text: &str) -> Option<ArgumentFinding> {
    let method = text.trim().to_ascii_uppercase();
    let writing = [
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "MOVE",
        "COPY",
        "MKCOL",
        "PROPPATCH",
        "LINK",
        "UNLINK",
    ];
    writing.contains(&method.as_str()).then(|| {
        ArgumentFinding::new(
            "method",
            format!("{method} changes what it is sent to"),
            HINT,
        )
    })
}

fn check_mode(text: &str) -> Option<ArgumentFinding> {
    let mode = text.trim().to_ascii_lowercase();
    let short = mode.len() <= 3 && mode.chars().all(|c| "rwaxbt+".contains(c));
    let opens = short && mode.chars().any(|c| "wax+".contains(c));
    let says = [
        "write",
        "append",
        "overwrite",
        "readwrite",
        "read_write",
        "rw",
        "create",
        "truncate",
    ];
    (opens || says.contains(&mode.as_str()))
        .then(|| ArgumentFinding::new("mode", "the file is opened to be written", HINT))
}

fn check_action(text: &str) -> Option<ArgumentFinding> {
    let words = roles::split_words(text);
    let first = words.first()?;
    WRITING
        .contains(&first.as_str())
        .then(|| ArgumentFinding::new("action", format!("{first} changes something"), HINT))
}

/// Checks a pipeline: reading commands may be joined by `|`, which writes nothing.
fn check_command(text: &str) -> Option<ArgumentFinding> {
    match commands::split_pipeline(text) {
        Ok(commands) => commands.iter().find_map(|words| check_argv(words)),
        Err(finding) => Some(finding),
    }
}

fn check_argv(words: &[String]) -> Option<ArgumentFinding> {
    command_rules::check(words, CommandPurpose::Read)
}
