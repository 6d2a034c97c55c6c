//! `mgp skills list|show|verify`.

use mgp_protocol::mcp::{Method, resources, skills};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::args::{ListArgs, OneSkill, ServeSkills, Skills};
use crate::cli::client::{CliContext, ConnectOptions, pages, parse_result};
use crate::cli::commands::servers;
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{first_line, sanitize_line};

/// The displayed part of an entry.
#[derive(Deserialize)]
struct Skill {
    uri: String,
    #[serde(default)]
    frontmatter: Value,
    #[serde(default)]
    resources: Value,
}

impl Skill {
    /// The URIs of its files; none for a dynamic skill.
    fn files(&self) -> Vec<&str> {
        let files = self.resources.as_array().into_iter().flatten();
        files.filter_map(|file| file["uri"].as_str()).collect()
    }

    fn describe_files(&self) -> String {
        match self.resources.as_array() {
            Some(files) => files.len().to_string(),
            None => "dynamic, not verified".into(),
        }
    }
}

pub(super) fn run(context: &CliContext, typed: &Skills) -> Result<(), Failure> {
    match typed {
        Skills::List(typed) => list(context, typed),
        Skills::Show(typed) => show(context, typed),
        Skills::Verify(typed) => verify(context, typed),
        Skills::Serve(typed) => serve(context, typed),
    }
}

fn list(context: &CliContext, typed: &ListArgs) -> Result<(), Failure> {
    let opening = ConnectOptions::for_server(typed.server.as_deref());
    let found = context.with_kernel_at(opening, async |client| {
        pages::list_all(client, skills::List::METHOD, "skills").await
    })?;
    if context.json {
        return print_line(json!({ "skills": found }));
    }
    if found.is_empty() {
        return print_line("no skills: no server that is connected lists one");
    }
    let mut table = new_table(&["SKILL", "FILES", "WHAT IT IS"]);
    for item in &found {
        let skill: Skill = parse_result(item)?;
        let what = skill.frontmatter["description"]
            .as_str()
            .unwrap_or_default();
        table.add_row([
            first_line(&skill.uri, 200),
            skill.describe_files(),
            first_line(what, 100),
        ]);
    }
    print_line(table)
}

/// Adds the folder as a server, whose program is this one.
fn serve(context: &CliContext, typed: &ServeSkills) -> Result<(), Failure> {
    let folder = &typed.folder;
    let whole = folder.canonicalize().ok().filter(|it| it.is_dir());
    let whole = whole.ok_or_else(|| {
        Failure::Usage(format!(
            "{} is no folder that can be read",
            folder.display()
        ))
    })?;
    let program = std::env::current_exe()?;
    let texts = [program, "__skills".into(), whole].map(|it| it.to_str().map(str::to_owned));
    let command: Option<Vec<String>> = texts.into_iter().collect();
    let command = command.ok_or_else(|| {
        Failure::Usage("the path of the folder or of the program is no UTF-8".into())
    })?;
    servers::add_program(context, &typed.name, command, typed.project)
}

fn entry(context: &CliContext, typed: &OneSkill) -> Result<Value, Failure> {
    let server = typed.server.as_deref();
    let (params, doing) = (json!({"uri": typed.uri}), format!("reading {}", typed.uri));
    let answer = context.call_at(server, skills::Get::METHOD, &params, doing)?;
    let mut result: Value = parse_result(&answer)?;
    Ok(result["skill"].take())
}

fn show(context: &CliContext, typed: &OneSkill) -> Result<(), Failure> {
    let entry = entry(context, typed)?;
    if context.json {
        return print_line(entry);
    }
    let text = format!("{entry:#}");
    let lines: Vec<String> = text.lines().map(sanitize_line).collect();
    print_line(lines.join("\n"))
}

/// Reads all files; the kernel verifies each.
fn verify(context: &CliContext, typed: &OneSkill) -> Result<(), Failure> {
    let other = |e| Failure::Other(format!("the kernel answered something else: {e}"));
    let skill: Skill = serde_json::from_value(entry(context, typed)?).map_err(other)?;
    let files = skill.files();
    for uri in &files {
        let (params, doing) = (json!({"uri": uri}), format!("verifying {uri}"));
        context.call_at(
            typed.server.as_deref(),
            resources::Read::METHOD,
            &params,
            doing,
        )?;
    }
    if context.json {
        return print_line(json!({ "uri": skill.uri, "verified": files.len() }));
    }
    match skill.resources.is_array() {
        true => print_line(format!(
            "{} files match the entry of the skill",
            files.len()
        )),
        false => print_line("the skill is dynamic: its server publishes no digests"),
    }
}
