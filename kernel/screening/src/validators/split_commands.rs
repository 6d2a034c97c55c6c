//! Commands whose program and words are in several arguments, or in a list.

use std::collections::HashSet;
use std::rc::Rc;

use super::arguments::{ArgumentKind, COMMANDS_MAX, CallArguments, Leaf};
use super::roles::{self, Role};
use super::{ArgumentFinding, BlockedArgument, Validator, commands, normalization, programs};

/// How a validator judges a command.
pub(super) struct Rules<'a, Words, Line> {
    pub(super) validator: Validator,
    pub(super) tool: &'a str,
    /// Checks the words of a command, with the text that names its program.
    pub(super) check_words: Words,
    /// Checks a command in one text.
    pub(super) check_line: Line,
}

/// Checks each such command. A command in one text is checked as text.
pub(super) fn check<Words, Line>(
    rules: &Rules<'_, Words, Line>,
    args: &CallArguments,
    runs: bool,
) -> Result<(), BlockedArgument>
where
    Words: Fn(&Leaf, &[String]) -> Option<ArgumentFinding>,
    Line: Fn(&str) -> Option<ArgumentFinding>,
{
    let blocked = |leaf, finding| BlockedArgument::for_leaf(rules.validator, leaf, finding);
    if let Some((leaf, finding)) = check_tool(rules, args) {
        return Err(blocked(leaf, finding));
    }
    for (count, head) in heads(args, runs).enumerate() {
        // Each is compared with all other texts.
        if count >= COMMANDS_MAX {
            let finding = ArgumentFinding::new(
                "unreadable",
                "the arguments cannot be checked (too many commands)",
                "make one plain command a call",
            );
            return Err(blocked(head, finding));
        }
        if let Some((line, finding)) = check_lines(args, head, &rules.check_line) {
            return Err(blocked(line, finding));
        }
        let leaves = args.leaves.iter();
        let mut others = leaves
            .filter(|other| is_word_of(other, head, runs))
            .peekable();
        let is_text = head.role == Role::Command && head.kind == ArgumentKind::Text;
        if is_text && others.peek().is_none() {
            continue;
        }
        let plain = normalization::normalize(&head.text);
        let mut words = commands::split_words(&plain).unwrap_or_else(|_| vec![plain]);
        for other in others {
            words.extend(words_of(other).map_err(|finding| blocked(other, finding))?);
        }
        if let Some(finding) = (rules.check_words)(head, &words) {
            return Err(blocked(head, finding));
        }
    }
    Ok(())
}

/// The words of an argument: all of a text, one of a list.
fn words_of(leaf: &Leaf) -> Result<Vec<String>, ArgumentFinding> {
    let plain = normalization::normalize(&leaf.text);
    match leaf.kind {
        ArgumentKind::Text => commands::split_words(&plain),
        ArgumentKind::Element | ArgumentKind::Number | ArgumentKind::Key => Ok(vec![plain]),
    }
}

/// Checks the arguments of a tool that has the name of a program.
fn check_tool<'a, Words, Line>(
    rules: &Rules<'_, Words, Line>,
    args: &'a CallArguments,
) -> Option<(&'a Leaf, ArgumentFinding)>
where
    Words: Fn(&Leaf, &[String]) -> Option<ArgumentFinding>,
{
    let arguments = value_leaves(args).filter(|leaf| leaf.role == Role::Args);
    let leaves: Vec<&Leaf> = arguments.collect();
    let is_verb = matches!(rules.tool, "run" | "exec" | "start" | "command");
    let is_named = is_program(rules.tool) && !is_verb;
    let first = leaves.first().filter(|_| is_named)?;
    // A command beside them has them for its own.
    if commanded_objects(args).contains(&*first.object) {
        return None;
    }
    let mut words = vec![rules.tool.to_owned()];
    for leaf in leaves.iter().copied() {
        match words_of(leaf) {
            Ok(more) => words.extend(more),
            Err(finding) => return Some((leaf, finding)),
        }
    }
    let finding = (rules.check_words)(first, &words)?;
    Some((first, finding))
}

/// Checks a list of commands, which has a program with its words in one text, or is named in the plural.
fn check_lines<'a>(
    args: &'a CallArguments,
    head: &Leaf,
    check_line: impl Fn(&str) -> Option<ArgumentFinding>,
) -> Option<(&'a Leaf, ArgumentFinding)> {
    let has_words = |leaf: &Leaf| leaf.text.trim().contains(char::is_whitespace);
    let all = has_words(head);
    if head.kind != ArgumentKind::Element || !all && !head.key.ends_with('s') {
        return None;
    }
    let listed = args.leaves.iter().filter(|leaf| leaf.parent == head.parent);
    listed
        .filter(|line| all || head.role == Role::Command && has_words(line))
        .find_map(|line| {
            let found = check_line(&normalization::normalize(&line.text));
            found.map(|finding| (line, finding))
        })
}

/// The texts that name a program. In a tool that runs commands, it may be under any name, or the first of the words.
fn heads(args: &CallArguments, runs: bool) -> impl Iterator<Item = &Leaf> {
    let with_command = commanded_objects(args);
    let with_path = objects(value_leaves(args).filter(|leaf| leaf.role == Role::Path));
    let mut with_args = objects(value_leaves(args).filter(|leaf| is_args(leaf, runs)));
    let above: Vec<&str> = with_args.iter().copied().flat_map(ancestors).collect();
    with_args.extend(above);
    let is_program = move |leaf: &&Leaf| {
        let object = &*leaf.object;
        let in_list = leaf.kind == ArgumentKind::Element;
        let is_named = match leaf.role {
            Role::Command => return true,
            Role::Args => !with_path.contains(object),
            Role::Other | Role::Action | Role::Code if in_list => true,
            Role::Path | Role::Method | Role::Mode | Role::Action | Role::Code | Role::Other => {
                with_args.contains(object)
            }
            Role::Url | Role::Host | Role::Sql | Role::Prose => false,
        };
        let is_beside = !in_list || matches!(leaf.role, Role::Args | Role::Path);
        runs && is_named && !(is_beside && with_command.contains(object)) && is_listed(leaf)
    };
    // Empty texts and `null` may stand before it.
    let mut lists = HashSet::new();
    let is_first = move |leaf: &&Leaf| match leaf.kind {
        ArgumentKind::Text => true,
        ArgumentKind::Element => {
            !leaf.text.trim().is_empty() && lists.insert(Rc::clone(&leaf.parent))
        }
        ArgumentKind::Number | ArgumentKind::Key => false,
    };
    let is_judged = |leaf: &&Leaf| !is_shell_of_command(args, leaf);
    value_leaves(args)
        .filter(is_first)
        .filter(is_program)
        .filter(is_judged)
}

/// The objects with a command that is not empty.
pub(super) fn commanded_objects(args: &CallArguments) -> HashSet<&str> {
    objects(value_leaves(args).filter(|leaf| is_command(leaf)))
}

fn is_command(leaf: &Leaf) -> bool {
    leaf.role == Role::Command && !leaf.text.trim().is_empty()
}

/// True for a text in one of these objects, at any depth.
pub(super) fn is_within(leaf: &Leaf, objects: &HashSet<&str>) -> bool {
    ancestors(&leaf.path).any(|object| objects.contains(object))
}

fn objects<'a>(leaves: impl Iterator<Item = &'a Leaf>) -> HashSet<&'a str> {
    leaves.map(|leaf| &*leaf.object).collect()
}

/// The pointers above this one.
fn ancestors(pointer: &str) -> impl Iterator<Item = &str> {
    pointer.match_indices('/').map(|(at, _)| &pointer[..at])
}

fn value_leaves(args: &CallArguments) -> impl Iterator<Item = &Leaf> {
    let leaves = args.leaves.iter();
    leaves.filter(|leaf| leaf.kind != ArgumentKind::Key)
}

/// True if the first word of a text is a program of the table.
pub(super) fn is_listed(leaf: &Leaf) -> bool {
    let text = normalization::normalize(&leaf.text);
    is_program(text.split_whitespace().next().unwrap_or_default())
}

fn is_program(word: &str) -> bool {
    let name = programs::program_name(word);
    programs::is_known(&name) || programs::forbidden_group(&name).is_some()
}

/// True for the words after a program: by their name, or in a list of a tool that runs commands.
fn is_args(leaf: &Leaf, runs: bool) -> bool {
    let is_named = || {
        let options = ["option", "options", "opts", "switches", "operands"];
        let key_above = leaf.path.rsplit('/').nth(1).unwrap_or_default();
        options.contains(&&*leaf.key) || roles::role_for_key(key_above) == Role::Args
    };
    let is_listed = leaf.kind == ArgumentKind::Element;
    leaf.role == Role::Args || runs && leaf.role == Role::Other && (is_listed || is_named())
}

/// True if a text is an argument of this program.
fn is_word_of(other: &Leaf, head: &Leaf, runs: bool) -> bool {
    let is_below = |place: &str| {
        let rest = other.path.strip_prefix(place);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let in_list = head.kind == ArgumentKind::Element && is_below(&head.parent);
    // In a list of any name, it stands with its words only.
    let is_named = head.role == Role::Command || head.kind != ArgumentKind::Element;
    let beside = is_named && head.role != Role::Args && is_below(&head.object);
    let beside = beside && is_args(other, runs);
    (in_list || beside) && other.path != head.path && other.kind != ArgumentKind::Key
}

/// True for the shell that a command beside it is given to: `shell: "bash"`.
pub(super) fn is_shell_of_command(args: &CallArguments, leaf: &Leaf) -> bool {
    let is_shell = |word: &str| programs::is_in_group("shell", &programs::table_key(word));
    let is_beside = |other: &Leaf| *other.key != *leaf.key && other.object == leaf.object;
    &*leaf.key == "shell"
        && leaf.kind == ArgumentKind::Text
        && is_shell(&leaf.text)
        && value_leaves(args).any(|other| is_command(other) && is_beside(other))
}

/// True if the words of this program are in other arguments.
pub(super) fn has_words(args: &CallArguments, head: &Leaf, runs: bool) -> bool {
    args.leaves
        .iter()
        .any(|other| is_word_of(other, head, runs))
}

/// Finds an operator in place of a word, and a line end before it: what joins the words makes two commands.
pub(super) fn check_separator(text: &str) -> Option<ArgumentFinding> {
    let word = text.trim_matches([' ', '\t']);
    let joins = ["|", "||", "|&", "&", "&&", ";", "<", ">", ">>", "2>", "&>"].contains(&word)
        || word.starts_with(['\n', '\r', '>', '<'])
        || word.contains("$(")
        || word.ends_with([';', '|', '&']) && word != "\\;";
    joins.then(|| {
        ArgumentFinding::new(
            "metacharacter",
            "a word that joins or redirects commands",
            "make one plain command a call",
        )
    })
}
