//! `[notify]`: where pending entries are announced.

use std::fmt;

use super::section;
use crate::config::parsing::Section;

/// The shortest secret of a webhook, in bytes: with fewer, its signatures could be guessed.
const SECRET_BYTES_MIN: usize = 16;

section! {
    /// `[notify]`.
    NotifyConfig {
        /// Whether the desktop shows them (freedesktop notifications on the session bus).
        desktop: bool = false, flag("desktop");
        /// A program and its arguments, started for each notice; `{text}` in an argument is the text.
        command: Vec<String> = Vec::new(), strings("command");
        /// Receives each notice with a POST.
        webhook: Option<String> = None, safe_url("webhook");
        /// The secret of its signatures.
        webhook_secret: WebhookSecret = WebhookSecret::default(), read_with(read_secret);
        => Self::check;
    }
}

/// The secret that signs what a webhook receives. `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct WebhookSecret(pub(crate) String);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

fn read_secret(section: &mut Section<'_, '_, '_>, into: &mut WebhookSecret) {
    let value = section.secret("webhook_secret");
    if !value.is_empty() {
        into.0 = value;
    }
}

impl NotifyConfig {
    fn check(&mut self, section: &mut Section<'_, '_, '_>) {
        if let Some(span) = section.span("command")
            && self.command.first().is_some_and(String::is_empty)
        {
            section.reject_key(span, "command", " wants a program and its arguments");
        }
        let wanted = "`webhook_secret` of 16 characters or more: its signatures show the receiver that a notice is genuine";
        if let Some(span) = section.span("webhook")
            && self.webhook_secret.0.len() < SECRET_BYTES_MIN
        {
            section.reject_key(span, "webhook", &format!(" needs a {wanted}"));
        }
    }
}
