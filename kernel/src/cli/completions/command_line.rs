//! Parses the command line up to the cursor as the program will, and suggests continuations.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, Command};

use super::names::NameKind;
use crate::cli::args::Options;

/// Suggestions at the cursor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Suggestions {
    pub(super) kind: SuggestionKind,
    pub(super) words: Vec<Suggestion>,
}

/// Further suggestions by the shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SuggestionKind {
    /// Nothing.
    #[default]
    Words,
    /// Existing files.
    Files,
    /// Existing folders.
    Folders,
}

impl SuggestionKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Files => "files",
            Self::Folders => "folders",
        }
    }
}

/// A word, and its description.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suggestion {
    pub(super) word: String,
    pub(super) help: String,
}

/// The command line before the cursor.
pub(super) struct CommandLine<'c> {
    command: &'c Command,
    /// `tools call`.
    path: String,
    /// Arguments that are no options, after the names of commands.
    pub(super) positionals: Vec<String>,
    /// The values of options, by argument name.
    options: BTreeMap<String, String>,
    /// The option whose value is at the cursor.
    open_option: Option<&'c Arg>,
    /// Whether `--` precedes the cursor.
    after_double_dash: bool,
}

impl<'c> CommandLine<'c> {
    /// Parses the words after the program's name; `None` if one of them is no command.
    pub(super) fn parse(root: &'c Command, words: &[String]) -> Option<Self> {
        let mut line = Self {
            command: root,
            path: String::new(),
            positionals: Vec::new(),
            options: BTreeMap::new(),
            open_option: None,
            after_double_dash: false,
        };
        for word in words {
            line.push_word(word)?;
        }
        Some(line)
    }

    fn push_word(&mut self, word: &str) -> Option<()> {
        if let Some(option) = self.open_option.take() {
            self.options
                .insert(option.get_id().to_string(), word.to_owned());
        } else if self.after_double_dash {
            self.positionals.push(word.to_owned());
        } else if word == "--" {
            self.after_double_dash = true;
        } else if word.starts_with('-') && word.len() > 1 {
            self.push_option(word);
        } else if self.command.has_subcommands() && self.positionals.is_empty() {
            let inner = self.command.find_subcommand(word)?;
            let space = if self.path.is_empty() { "" } else { " " };
            self.path = format!("{}{space}{}", self.path, inner.get_name());
            self.command = inner;
        } else {
            self.positionals.push(word.to_owned());
        }
        Some(())
    }

    fn push_option(&mut self, word: &str) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let Some(option) = self.find_option(name).filter(|option| takes_value(option)) else {
            return;
        };
        match value {
            Some(value) => {
                let id = option.get_id().to_string();
                self.options.insert(id, value.to_owned());
            }
            None => self.open_option = Some(option),
        }
    }

    /// The option of this name; of several short ones in a word the last.
    fn find_option(&self, name: &str) -> Option<&'c Arg> {
        let mut all = self.command.get_arguments();
        match name.strip_prefix("--") {
            Some(long) => all.find(|option| option.get_long() == Some(long)),
            None => {
                let short = name.chars().last()?;
                all.find(|option| option.get_short() == Some(short))
            }
        }
    }

    /// Options of the line select the kernel to query.
    pub(super) fn merge_options(&self, options: &Options) -> Options {
        let path = |id: &str, otherwise: &Option<PathBuf>| {
            let named = self.options.get(id).map(PathBuf::from);
            named.or_else(|| otherwise.clone())
        };
        Options {
            json: false,
            no_pager: true,
            config: path("config", &options.config),
            socket: path("socket", &options.socket),
            data_dir: path("data_dir", &options.data_dir),
        }
    }

    /// Suggestions at the cursor after `typed`.
    pub(super) fn suggest(
        &self,
        typed: &str,
        names: impl Fn(NameKind, &str) -> Vec<String>,
    ) -> Suggestions {
        if let Some(option) = self.open_option {
            return self.suggest_values(option, "", typed, names);
        }
        if !self.after_double_dash && typed.starts_with('-') {
            return match typed.split_once('=') {
                Some((name, value)) => match self
                    .find_option(name)
                    .filter(|option| takes_value(option))
                {
                    Some(option) => self.suggest_values(option, &format!("{name}="), value, names),
                    None => Suggestions::default(),
                },
                None => self.suggest_options(typed),
            };
        }
        if self.command.has_subcommands() && self.positionals.is_empty() && !self.after_double_dash
        {
            return self.suggest_commands(typed);
        }
        match self.next_positional() {
            Some(argument) => self.suggest_values(argument, "", typed, names),
            None => Suggestions::default(),
        }
    }

    /// The next positional argument; the last one may repeat.
    fn next_positional(&self) -> Option<&'c Arg> {
        let all: Vec<_> = self.command.get_positionals().collect();
        if self.after_double_dash
            && let Some(last) = all.iter().find(|argument| argument.is_last_set())
        {
            return Some(last);
        }
        let all: Vec<_> = all.into_iter().filter(|arg| !arg.is_last_set()).collect();
        let again = |argument: &&&Arg| {
            let range = argument.get_num_args();
            range.is_some_and(|range| range.max_values() > 1)
        };
        let next = all.get(self.positionals.len());
        next.or_else(|| all.last().filter(again)).copied()
    }

    fn suggest_commands(&self, typed: &str) -> Suggestions {
        let all = self.command.get_subcommands();
        let there = all.filter(|command| !command.is_hide_set());
        word_suggestions(there.filter_map(|command| {
            let what = command.get_about().map(ToString::to_string);
            suggestion_for(command.get_name().to_owned(), what, typed)
        }))
    }

    fn suggest_options(&self, typed: &str) -> Suggestions {
        let there = self.command.get_arguments();
        let there = there.filter(|option| !option.is_hide_set());
        word_suggestions(there.filter_map(|option| {
            let what = option.get_help().map(ToString::to_string);
            suggestion_for(format!("--{}", option.get_long()?), what, typed)
        }))
    }

    fn suggest_values(
        &self,
        argument: &Arg,
        before: &str,
        typed: &str,
        names: impl Fn(NameKind, &str) -> Vec<String>,
    ) -> Suggestions {
        let possible = argument.get_possible_values();
        if !possible.is_empty() {
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            return word_suggestions(shown.filter_map(|value| {
                let what = value.get_help().map(ToString::to_string);
                let mut found = suggestion_for(value.get_name().to_owned(), what, typed)?;
                found.word.insert_str(0, before);
                Some(found)
            }));
        }
        let kind = NameKind::for_argument(&self.path, argument.get_id().as_str());
        let mut found = match kind {
            Some(kind) => word_suggestions(names(kind, typed).into_iter().filter_map(|name| {
                let found = suggestion_for(name, None, typed)?;
                let word = format!("{before}{}", found.word);
                Some(Suggestion { word, ..found })
            })),
            None => Suggestions::default(),
        };
        // After `--opt=` no files are completed: shells differ in what they replace.
        if before.is_empty() && found.words.is_empty() {
            found.kind = path_kind(argument);
        }
        found
    }
}

/// A file or a folder, by its value name in the help.
fn path_kind(argument: &Arg) -> SuggestionKind {
    let named = argument.get_value_names().unwrap_or_default();
    let named = |word: &str| named.iter().any(|name| name.split('|').any(|n| n == word));
    if named("DIR") || named("FOLDER") {
        SuggestionKind::Folders
    } else if named("FILE") || named("PATH") || named("COMMAND") {
        SuggestionKind::Files
    } else {
        SuggestionKind::Words
    }
}

fn word_suggestions(found: impl Iterator<Item = Suggestion>) -> Suggestions {
    Suggestions {
        kind: SuggestionKind::Words,
        words: found.collect(),
    }
}

fn suggestion_for(word: String, what: Option<String>, typed: &str) -> Option<Suggestion> {
    let what = what.unwrap_or_default();
    let what = what.lines().next().unwrap_or_default().to_owned();
    word.starts_with(typed)
        .then_some(Suggestion { word, help: what })
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;
    use crate::cli::completions::names::ARGUMENT_KINDS;

    fn at(line: &str, cursor: &str) -> (Vec<String>, SuggestionKind, Option<NameKind>) {
        let mut root = Cli::command();
        root.build();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let asked = std::cell::Cell::new(None);
        let found = match CommandLine::parse(&root, &words) {
            Some(line) => line.suggest(cursor, |kind, _| {
                asked.set(Some(kind));
                Vec::new()
            }),
            None => Suggestions::default(),
        };
        let words = found.words.into_iter().map(|found| found.word).collect();
        (words, found.kind, asked.get())
    }

    fn words_at(line: &str, cursor: &str) -> Vec<String> {
        at(line, cursor).0
    }

    fn kind_at(line: &str, cursor: &str) -> Option<NameKind> {
        at(line, cursor).2
    }

    #[test]
    fn commands_options_and_their_values_are_offered() {
        assert_eq!(words_at("", "statu"), ["status"]);
        assert_eq!(words_at("tools", ""), ["list", "call", "find", "confirm"]);
        assert!(words_at("", "").iter().all(|word| !word.starts_with("__")));
        assert_eq!(words_at("servers update", "--dry"), ["--dry-run"]);
        assert_eq!(words_at("tools find x --strategy", "k"), ["keyword"]);
        assert_eq!(
            words_at("tools find x", "--strategy=k"),
            ["--strategy=keyword"]
        );
        assert_eq!(words_at("completions", "z"), ["zsh"]);
        assert_eq!(words_at("no such", ""), [""; 0]);
        assert_eq!(words_at("status", ""), [""; 0]);
    }

    #[test]
    fn names_are_completed_at_their_arguments() {
        assert_eq!(kind_at("servers start", ""), Some(NameKind::Servers));
        assert_eq!(kind_at("servers start x", ""), None);
        assert_eq!(kind_at("servers add", ""), None);
        assert_eq!(kind_at("--json tools call", "it"), Some(NameKind::Tools));
        assert_eq!(kind_at("tools call it:echo", ""), Some(NameKind::Arguments));
        assert_eq!(
            kind_at("tools call it:echo a=1", ""),
            Some(NameKind::Arguments)
        );
        assert_eq!(kind_at("grants add", ""), Some(NameKind::Agents));
        assert_eq!(
            kind_at("grants add --deny a", ""),
            Some(NameKind::ServersAndTools)
        );
        assert_eq!(kind_at("tools list --agent", ""), Some(NameKind::Agents));
        assert_eq!(kind_at("tools list", "--agent="), Some(NameKind::Agents));
        assert_eq!(kind_at("connect a", "b"), Some(NameKind::Clients));
    }

    #[test]
    fn files_are_left_to_the_shell() {
        let kind = |line: &str| at(line, "").1;
        assert_eq!(kind("--config"), SuggestionKind::Files);
        assert_eq!(kind("--data-dir"), SuggestionKind::Folders);
        assert_eq!(kind("trust"), SuggestionKind::Folders);
        assert_eq!(kind("servers add x --"), SuggestionKind::Files);
        assert_eq!(kind("import"), SuggestionKind::Files);
        assert_eq!(kind("servers start"), SuggestionKind::Words);
    }

    #[test]
    fn the_kernel_named_in_the_line_is_queried() {
        let mut root = Cli::command();
        root.build();
        let words = ["--socket=/a", "tools", "--config", "/b", "call"].map(str::to_owned);
        let line = CommandLine::parse(&root, &words).unwrap();
        let none = Options {
            json: true,
            no_pager: false,
            config: None,
            socket: None,
            data_dir: Some("/c".into()),
        };
        let over = line.merge_options(&none);
        assert_eq!(over.socket, Some("/a".into()));
        assert_eq!(over.config, Some("/b".into()));
        assert_eq!(over.data_dir, Some("/c".into()));
    }

    /// The table of names must follow renamed commands.
    #[test]
    fn every_kind_of_name_belongs_to_an_argument() {
        let mut root = Cli::command();
        root.build();
        for (path, argument, _) in ARGUMENT_KINDS {
            let mut commands = vec![&root];
            if *path != "*" {
                let inner = path
                    .split(' ')
                    .try_fold(&root, |at, word| at.find_subcommand(word));
                commands = vec![inner.unwrap_or_else(|| panic!("{path} is no command"))];
            }
            let mut found = false;
            while let Some(command) = commands.pop() {
                found |= command
                    .get_arguments()
                    .any(|arg| arg.get_id().as_str() == *argument);
                commands.extend(command.get_subcommands());
            }
            assert!(found, "{path} has no {argument}");
        }
    }
}
