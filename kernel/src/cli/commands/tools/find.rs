//! `mgp tools find`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::index::{IndexCoverage, Search, SearchResult, Tool};

use crate::cli::args::Find;
use crate::cli::client::{CliContext, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{PlainTable, new_table, print_line};
use crate::cli::text_format::{first_line, pluralize, sanitize_line};

pub(super) fn find(context: &CliContext, find: &Find) -> Result<(), Failure> {
    let mut params = Search {
        query: find.query.clone(),
        strategy: Some(find.strategy.clone()),
        max_results: Some(find.max),
        categories: find.category.clone(),
        agent: find.agent.clone(),
        risk_level_max: None,
    };
    let answer = context.with_kernel(async |client| {
        if let Some(agent) = &find.agent {
            params.agent = name_resolution::resolve_agent(client, agent).await?;
        }
        let doing = "looking for tools";
        client.call(Search::METHOD, &params, doing).await
    })?;
    context.print_answer(&answer, |found: SearchResult| {
        if found.tools.is_empty() && found.skills.is_empty() {
            print_line(format_args!(
                "nothing among {}; `mgp tools list` shows all of them",
                pluralize(found.total_available, "tool")
            ))?
        }
        if !found.tools.is_empty() {
            print_line(result_table(&found))?
        }
        if !found.skills.is_empty() {
            print_line(skill_table(&found))?
        }
        if let Some(note) = &found.note {
            print_line(sanitize_line(note))?;
        }
        print_line(render_footer(&found))
    })
}

fn result_table(found: &SearchResult) -> PlainTable {
    let mut table = new_table(&["FITS", "TOOL", "RISK", "WHAT IT DOES"]);
    for tool in &found.tools {
        table.add_row([
            score_cell(tool),
            sanitize_line(&tool.tool_id),
            tool.risk_level.as_str().to_owned(),
            first_line(&tool.description, 100),
        ]);
    }
    table
}

fn skill_table(found: &SearchResult) -> PlainTable {
    let mut table = new_table(&["FITS", "SKILL", "WHAT IT IS"]);
    for skill in &found.skills {
        let fits = if skill.fits { "yes" } else { "?" };
        table.add_row([
            fits.to_owned(),
            first_line(&skill.uri, 200),
            first_line(&skill.description, 100),
        ]);
    }
    table
}

/// Its score, with `?` if the tool may do something else than requested.
fn score_cell(tool: &Tool) -> String {
    let suffix = if tool.fits { "" } else { " ?" };
    format!("{:.2}{suffix}", tool.relevance_score)
}

fn render_footer(found: &SearchResult) -> String {
    let IndexCoverage {
        tools,
        by_meaning,
        waiting,
        ..
    } = found.index;
    let mut footer = format!(
        "{} of {}, by {}, in {:.0} ms",
        found.tools.len(),
        pluralize(found.total_available, "tool"),
        found.search_strategy,
        found.query_time_ms
    );
    if waiting > 0 {
        footer += &format!("; {by_meaning} of {tools} can be found by meaning so far");
    }
    footer
}
