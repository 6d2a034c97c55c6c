//! The preview before a server of the registry is added.

use serde_json::{Value, json};

use super::api::RegistryClient;
use super::install_plan::InstallPlan;
use super::server_json::{PublishedInput, RegistryEntry, publisher_label};
use crate::cli::args::Add;
use crate::cli::text_format::{first_line, quote_for_shell, sanitize_line};

/// Most characters of a publisher's text.
const TEXT_WIDTH_MAX: usize = 200;

/// The publisher, and what would be run.
pub(super) fn render_preview(
    answer: &RegistryEntry,
    client: &RegistryClient<'_>,
    plan: &InstallPlan,
) -> String {
    let server = &answer.server;
    let mut lines = vec![
        format!(
            "{} {}, from {}",
            server.name,
            first_line(&server.version, 40),
            client.url()
        ),
        format!("  published by  {}", publisher_label(&server.name)),
    ];
    let mut add = |title: &str, text: &str| {
        if !text.is_empty() {
            lines.push(format!(
                "  {title:<13} {}",
                first_line(text, TEXT_WIDTH_MAX)
            ));
        }
    };
    if answer.status() != "active" {
        add("status", answer.status());
    }
    add("says", server.description_or_title());
    add("source", server.repository_url().unwrap_or_default());
    for input in plan.required_inputs() {
        let about = input.description.as_deref().unwrap_or_default();
        add("needs", &format!("{} {about}", input.label()));
    }
    for secret in &plan.secrets {
        add(
            "needs",
            &format!("{} (a secret) {}", secret.name, secret.description),
        );
    }
    let optional: Vec<_> = plan.optional_inputs().map(PublishedInput::label).collect();
    add("may have", &optional.join(", "));
    join_sanitized(&lines)
}

/// The entry, word by word.
pub(super) fn render_entry(entry: &Add, plan: &InstallPlan) -> String {
    let mut lines = vec![String::new(), format!("to be added as {}:", entry.id)];
    match &plan.url {
        Some(url) => lines.push(format!("  reached at    {url}")),
        None => {
            let words: Vec<String> = plan
                .command
                .iter()
                .map(|word| quote_for_shell(word))
                .collect();
            lines.push(format!("  starts        {}", words.join(" ")));
        }
    }
    for (name, value) in plan.env.iter().chain(&plan.headers) {
        lines.push(format!("  with          {name}={}", quote_for_shell(value)));
    }
    for secret in &plan.secrets {
        lines.push(format!(
            "  with          {} out of the secrets",
            secret.name
        ));
    }
    if !plan.launcher_words.is_empty() {
        let words: Vec<String> = plan
            .launcher_words
            .iter()
            .map(|word| quote_for_shell(word))
            .collect();
        let program = plan.command.first().map_or("", String::as_str);
        lines.push(format!(
            "  CAREFUL       {program} itself is told {}: that may open this machine to it",
            words.join(" ")
        ));
    }
    join_sanitized(&lines)
}

/// Each as one line, sanitized.
fn join_sanitized(lines: &[String]) -> String {
    let lines = lines.iter().map(|line| sanitize_line(line));
    lines.collect::<Vec<_>>().join("\n")
}

pub(super) fn to_json(
    answer: &RegistryEntry,
    entry: &Add,
    plan: &InstallPlan,
    added: bool,
) -> Value {
    let secrets: Vec<_> = plan.secrets.iter().map(|secret| &secret.name).collect();
    json!({
        "server": answer.to_json(), "id": entry.id, "command": plan.command, "url": plan.url,
        "env": plan.env, "secrets": secrets, "launcher_words": plan.launcher_words, "added": added,
    })
}
