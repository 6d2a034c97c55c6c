//! Answers to the inputs of clients (`inputs` of VS Code), prompted for once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use mgp_clients::{ClientInput, InputAnswer, ParsedClientFile};

use super::sources::Sources;
use crate::cli::failure::Failure;
use crate::cli::hidden_input::HiddenInput;
use crate::cli::text_format::first_line;

/// By file and id of the input: one id may mean two things in two files.
#[derive(Default)]
pub(super) struct InputAnswers {
    pub(super) values: BTreeMap<PathBuf, BTreeMap<String, InputAnswer>>,
}

impl InputAnswers {
    /// Prompts for required inputs; `unattended` uses the defaults.
    pub(super) fn ask(sources: &Sources, unattended: bool) -> Result<Self, Failure> {
        let unattended = unattended || !io::stdin().is_terminal();
        let mut answers = Self::default();
        for file in &sources.files {
            let asked = sources.inputs.get(&file.path);
            for (id, servers) in needed_inputs(file) {
                let known = asked.into_iter().flatten().find(|input| input.id == id);
                // An undescribed input may be a secret.
                let unknown = ClientInput {
                    id: id.to_owned(),
                    description: String::new(),
                    secret: true,
                    default: None,
                    options: Vec::new(),
                };
                let input = known.unwrap_or(&unknown);
                let answer = if unattended {
                    input.default.clone()
                } else {
                    prompt_input(input, &servers)?
                };
                if let Some(text) = answer {
                    let secret = input.secret;
                    let given = answers.values.entry(file.path.clone()).or_default();
                    given.insert(id.to_owned(), InputAnswer { text, secret });
                }
            }
        }
        Ok(answers)
    }
}

/// The inputs that servers of a file need, each with the names of those servers.
fn needed_inputs(file: &ParsedClientFile) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut needed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for server in &file.servers {
        for id in server.inputs() {
            needed.entry(id).or_default().insert(&server.name);
        }
    }
    needed
}

/// `None` skips the servers that need it.
fn prompt_input(input: &ClientInput, servers: &BTreeSet<&str>) -> Result<Option<String>, Failure> {
    let typed = if input.secret {
        HiddenInput::open()?.read_secret(&format!(
            "{} (it is not shown): ",
            question_text(input, servers)
        ))?
    } else {
        let mut terminal = io::stderr().lock();
        write!(terminal, "{}: ", question_text(input, servers))?;
        terminal.flush()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        line.trim_end_matches(['\r', '\n']).to_owned()
    };
    Ok(if typed.is_empty() {
        input.default.clone()
    } else {
        Some(typed)
    })
}

fn question_text(input: &ClientInput, servers: &BTreeSet<&str>) -> String {
    let what = if input.description.is_empty() {
        &input.id
    } else {
        &input.description
    };
    let names: Vec<&str> = servers.iter().copied().collect();
    let mut question = format!(
        "{}: {}",
        first_line(&names.join(", "), 60),
        first_line(what, 80)
    );
    if !input.options.is_empty() {
        question += &format!(" ({})", first_line(&input.options.join(", "), 80));
    }
    if let Some(default) = input.default.as_ref().filter(|_| !input.secret) {
        question += &format!(" [{}]", first_line(default, 40));
    }
    question
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_names_the_servers_that_need_the_answer() {
        let input = ClientInput {
            id: "region".to_owned(),
            description: "Region".to_owned(),
            secret: false,
            default: Some("eu".to_owned()),
            options: vec!["eu".to_owned(), "us".to_owned()],
        };
        let servers = BTreeSet::from(["weather", "maps"]);
        assert_eq!(
            question_text(&input, &servers),
            "maps, weather: Region (eu, us) [eu]"
        );
    }
}
