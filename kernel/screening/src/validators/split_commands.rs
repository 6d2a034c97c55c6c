//! Commands whose program and words are in several arguments, or in a list.

use std::collections::HashSet;

use super::arguments::{ArgumentKind, COMMANDS_MAX, CallArguments, Leaf};
use super::roles::Role;
use super::{ArgumentFinding, BlockedArgument, Validator, commands, normalization, programs};

/// Checks each such command, with the text that names its program. A command in one text is checked as text.
pub(super) fn check(
    validator: Validator,
    args: &CallArguments,
    runs: bool,
    check_words: impl Fn(&Leaf, &[String]) -> Option<ArgumentFinding>,
) -> Result<(), BlockedArgument> {
    let blocked = |leaf, finding| BlockedArgument::for_leaf(validator, leaf, finding);
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
        let leaves = args.leaves.iter();
        let mut others = leaves.filter(|other| is_word_of(other, head)).peekable();
        let is_text = head.role == Role::Command && head.kind == ArgumentKind::Text;
        if is_text && others.peek().is_none() {
            continue;
        }
        let plain = normalization::normalize(&head.text);
        let mut words = commands::split_words(&plain).unwrap_or_else(|_| vec![plain]);
        for other in others {
            let plain = normalization::normalize(&other.text);
            match other.kind {
                ArgumentKind::Text => {
                    let more = commands::split_words(&plain);
                    words.extend(more.map_err(|finding| blocked(other, finding))?);
                }
                ArgumentKind::Element | ArgumentKind::Number | ArgumentKind::Key => {
                    words.push(plain);
                }
            }
        }
        if let Some(finding) = check_words(head, &words) {
            return Err(blocked(head, finding));
        }
    }
    Ok(())
}

/// The texts that name a program. In a tool that runs commands, it may be the first of the words, or named as a file.
fn heads(args: &CallArguments, runs: bool) -> impl Iterator<Item = &Leaf> {
    let objects_with = |wanted: Role| -> HashSet<&str> {
        let leaves = given(args).filter(|leaf| leaf.role == wanted);
        leaves.map(|leaf| &*leaf.object).collect()
    };
    let with_command = objects_with(Role::Command);
    let with_path = objects_with(Role::Path);
    let with_args = objects_with(Role::Args);
    let is_program = move |leaf: &&Leaf| {
        let object = &*leaf.object;
        let among_words = match leaf.role {
            Role::Command => return true,
            Role::Args => !with_path.contains(object),
            Role::Path => with_args.contains(object),
            Role::Url | Role::Host | Role::Sql | Role::Code | Role::Prose => false,
            Role::Method | Role::Mode | Role::Action | Role::Other => false,
        };
        among_words && runs && !with_command.contains(object) && is_listed(leaf)
    };
    let is_first = |leaf: &&Leaf| leaf.kind != ArgumentKind::Element || leaf.path.ends_with("/0");
    given(args).filter(is_first).filter(is_program)
}

fn given(args: &CallArguments) -> impl Iterator<Item = &Leaf> {
    let leaves = args.leaves.iter();
    leaves.filter(|leaf| leaf.kind != ArgumentKind::Key)
}

/// True if the first word of a text is a program of the table.
fn is_listed(leaf: &Leaf) -> bool {
    let text = normalization::normalize(&leaf.text);
    let name = programs::program_name(text.split_whitespace().next().unwrap_or_default());
    programs::is_known(&name) || programs::forbidden_group(&name).is_some()
}

/// True if a text is an argument of this program.
pub(super) fn is_word_of(other: &Leaf, head: &Leaf) -> bool {
    let in_list = head.kind == ArgumentKind::Element && other.parent == head.parent;
    let beside = head.role != Role::Args && other.role == Role::Args && other.object == head.object;
    (in_list || beside) && other.path != head.path && other.kind != ArgumentKind::Key
}

/// Finds an operator in place of a word, and a line end before it: what joins the words makes two commands.
pub(super) fn check_separator(text: &str) -> Option<ArgumentFinding> {
    let word = text.trim_matches([' ', '\t']);
    let joins = ["|", "||", "|&", "&", "&&", ";", "<", ">", ">>", "2>", "&>"].contains(&word)
        || word.starts_with(['\n', '\r'])
        || word.ends_with([';', '|', '&']) && word != "\\;" && !word.contains(char::is_whitespace);
    joins.then(|| {
        ArgumentFinding::new(
            "metacharacter",
            "a word that joins or redirects commands",
            "make one plain command a call",
        )
    })
}
