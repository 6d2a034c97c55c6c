//! `readonly`: nothing that writes (MGP §4.5). For commands this is a list of what only reads;
//! a program nobody knows may write.

use super::arguments::{ArgumentKind, CallArguments, Leaf};
use super::programs::CommandPurpose;
use super::roles::{self, Role};
use super::{
    ArgumentFinding, Blocked, ScreenedCall, Validator, command_rules, commands, sql, views,
};

const HINT: &str = "this tool is limited to reading; ask for what is there without changing it";

/// First words of names of tools that write.
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

pub(super) fn judge(call: &ScreenedCall<'_>, args: &CallArguments) -> Result<(), Blocked> {
    if let Some(finding) = judge_tool(call) {
        return Err(Blocked::new(Validator::Readonly, "", call.tool, finding));
    }
    let words = roles::words(call.tool);
    let database =
        roles::asks_a_database(&words) || call.side_effects.iter().any(|e| e == "database");
    let runs = roles::runs_commands(&words);
    for leaf in &args.leaves {
        if let Some(finding) = judge_leaf(leaf, args, database, runs) {
            return Err(Blocked::at(Validator::Readonly, leaf, finding));
        }
    }
    judge_lists(args)
}

/// What the server itself says, and the name. To reach out is no write; all other effects are.
fn judge_tool(call: &ScreenedCall<'_>) -> Option<ArgumentFinding> {
    if let Some(effect) = call.side_effects.iter().find(|e| *e != "network") {
        return writes(
            "side_effect",
            &format!("the tool declares an effect on {effect}"),
        );
    }
    if call.read_only_hint == Some(false) {
        return writes(
            "annotation",
            "the tool says of itself that it does not only read",
        );
    }
    let first = roles::words(call.tool).into_iter().next()?;
    WRITING.contains(&first.as_str()).then(|| {
        ArgumentFinding::new(
            "tool_name",
            format!("by its name the tool is there to {first}"),
            HINT,
        )
    })
}

fn writes(rule: &'static str, reason: &str) -> Option<ArgumentFinding> {
    Some(ArgumentFinding::new(rule, reason, HINT))
}

fn judge_leaf(
    leaf: &Leaf,
    args: &CallArguments,
    database: bool,
    runs: bool,
) -> Option<ArgumentFinding> {
    if matches!(leaf.kind, ArgumentKind::Number | ArgumentKind::Key) {
        return None;
    }
    let open = leaf.role == Role::Other;
    let role = if database && (open || leaf.role == Role::Prose) {
        Role::Sql
    } else if runs && open {
        Role::Command
    } else {
        leaf.role
    };
    let list = leaf.kind == ArgumentKind::Element;
    views::both(&leaf.text).iter().find_map(|text| match role {
        Role::Sql => sql::judge(text),
        Role::Command if list => None,
        // Some databases call their statements commands.
        Role::Command if database || sql::is_statement(text) => sql::judge(text),
        Role::Command if leaf.role == role && args.leaves.iter().any(|l| belongs(l, leaf)) => {
            commands::words(text).err()
        }
        Role::Command => judge_command(text),
        Role::Method => judge_method(text),
        Role::Mode => judge_mode(text),
        Role::Action => judge_action(text),
        Role::Path | Role::Url | Role::Host => None,
        Role::Args | Role::Code | Role::Prose | Role::Other => judge_other(text, role),
    })
}

fn judge_other(text: &str, role: Role) -> Option<ArgumentFinding> {
    if is_mutation(text) {
        return writes("mutation", "the GraphQL text is a mutation");
    }
    (role != Role::Prose && sql::is_statement(text)).then(|| sql::judge(text))?
}

fn is_mutation(text: &str) -> bool {
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default().trim());
    let whole: String = lines.collect::<Vec<_>>().join(" ");
    // Several operations may stand in one text; each begins outside of braces.
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

fn judge_method(text: &str) -> Option<ArgumentFinding> {
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

fn judge_mode(text: &str) -> Option<ArgumentFinding> {
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

fn judge_action(text: &str) -> Option<ArgumentFinding> {
    let words = roles::words(text);
    let first = words.first()?;
    WRITING
        .contains(&first.as_str())
        .then(|| ArgumentFinding::new("action", format!("{first} changes something"), HINT))
}

/// Commands that only read may be joined by `|`, which writes nothing by itself.
fn judge_command(text: &str) -> Option<ArgumentFinding> {
    match commands::pipeline(text) {
        Ok(commands) => commands.iter().find_map(|words| judge_argv(words)),
        Err(finding) => Some(finding),
    }
}

fn judge_argv(words: &[String]) -> Option<ArgumentFinding> {
    command_rules::judge(words, CommandPurpose::Read)
}

/// Whether a text is among the words that go with this program.
fn belongs(other: &Leaf, head: &Leaf) -> bool {
    let both = other.kind == ArgumentKind::Element && head.kind == ArgumentKind::Element;
    let listed = both && other.parent == head.parent && other.path != head.path;
    let role = other.role;
    listed || role == Role::Args && other.object == head.object && other.kind != ArgumentKind::Key
}

/// Commands given as a list of words, or as a program and its arguments.
fn judge_lists(args: &CallArguments) -> Result<(), Blocked> {
    let heads = args.leaves.iter().filter(|l| {
        let first = l.kind == ArgumentKind::Text
            || l.kind == ArgumentKind::Element && l.path.ends_with("/0");
        first && l.role == Role::Command
    });
    for head in heads {
        let rest = args.leaves.iter().filter(|other| belongs(other, head));
        let mut words = commands::words(&views::plain(&head.text)).unwrap_or_default();
        words.extend(rest.flat_map(|l| {
            let plain = views::plain(&l.text);
            match l.kind {
                ArgumentKind::Text => commands::words(&plain).unwrap_or_else(|_| vec![plain]),
                ArgumentKind::Element | ArgumentKind::Number | ArgumentKind::Key => vec![plain],
            }
        }));
        if sql::is_statement(&head.text) || words.len() < 2 && head.kind == ArgumentKind::Text {
            continue;
        }
        if let Some(finding) = judge_argv(&words) {
            return Err(Blocked::at(Validator::Readonly, head, finding));
        }
    }
    Ok(())
}
