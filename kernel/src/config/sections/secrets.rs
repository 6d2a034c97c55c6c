//! `[secrets]`: where named secrets are stored.

use crate::config::parsing::{NAME_PLACEHOLDER, SecretsConfig, Section};

impl SecretsConfig {
    pub(crate) fn read(&mut self, mut section: Section<'_, '_, '_>) {
        let (mut on, named) = (true, section.span("keyring").is_some());
        section.flag("keyring", &mut on);
        if named {
            self.keyring = Some(on);
        }
        let span = section.span("command");
        if let Some(words) = section.texts("command") {
            self.command = words
                .into_iter()
                .map(|word| (*word.get_ref()).to_owned())
                .collect();
            let (program, arguments) = self.command.split_first().unzip();
            let named = arguments.is_some_and(|words: &[String]| {
                words.iter().any(|word| word.contains(NAME_PLACEHOLDER))
            });
            if !self.command.is_empty() && (!named || program.is_some_and(String::is_empty)) {
                let words = "`command` in [secrets] wants a program and its arguments, with {name} where the name of the secret goes";
                section.reject(span.unwrap_or_default(), words);
            }
        }
        section.finish();
    }
}
