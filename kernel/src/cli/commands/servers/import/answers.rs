//! What clients would ask their users for (`inputs` of VS Code), asked here once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, IsTerminal, Write};

use mgp_clients::{FoundInput, FoundServer};

use super::sources::Sources;
use crate::cli::failure::Failure;
use crate::cli::unseen::UnseenInput;
use crate::cli::words::one_line;

/// InputAnswers, by the id of the input.
#[derive(Default)]
pub(super) struct InputAnswers {
    pub(super) given: BTreeMap<String, String>,
}

impl InputAnswers {
    /// Asks for what servers need; `unattended` takes the defaults there are.
    pub(super) fn ask(sources: &Sources, unattended: bool) -> Result<Self, Failure> {
        let servers = sources.files.iter().flat_map(|file| &file.servers);
        let needed: BTreeSet<&str> = servers.flat_map(FoundServer::inputs).collect();
        let mut answers = Self::default();
        for input in &sources.inputs {
            if !needed.contains(input.id.as_str()) || answers.given.contains_key(&input.id) {
                continue;
            }
            let answer = match unattended || !io::stdin().is_terminal() {
                true => input.default.clone(),
                false => ask(input)?,
            };
            if let Some(answer) = answer {
                answers.given.insert(input.id.clone(), answer);
            }
        }
        Ok(answers)
    }
}

/// `None` leaves out the servers that need it.
fn ask(input: &FoundInput) -> Result<Option<String>, Failure> {
    let what = match input.description.is_empty() {
        true => &input.id,
        false => &input.description,
    };
    let mut question = one_line(what, 80);
    if !input.options.is_empty() {
        question += &format!(" ({})", one_line(&input.options.join(", "), 80));
    }
    if let Some(default) = input.default.as_ref().filter(|_| !input.secret) {
        question += &format!(" [{}]", one_line(default, 40));
    }
    let typed = match input.secret {
        true => UnseenInput::open()?.ask(&format!("{question} (it is not shown): "))?,
        false => {
            let mut terminal = io::stderr().lock();
            write!(terminal, "{question}: ")?;
            terminal.flush()?;
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line)?;
            line.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    Ok(match typed.is_empty() {
        true => input.default.clone(),
        false => Some(typed),
    })
}
