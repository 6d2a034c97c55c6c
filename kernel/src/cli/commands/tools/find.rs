//! `mgp tools find`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::index::{Coverage, Search, Searched, Tool};

use crate::cli::args::Find;
use crate::cli::client::{CliContext, names};
use crate::cli::failure::Failure;
use crate::cli::print::{PlainTable, say, table};
use crate::cli::words::{counted, one_line, plain};

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
            params.agent = names::agent(client, agent).await?;
        }
        let doing = "looking for tools";
        client.ask(Search::METHOD, &params, doing).await
    })?;
    context.show(&answer, |found: Searched| {
        match found.tools.is_empty() {
            true => say(format_args!(
                "nothing among {}; `mgp tools list` shows all of them",
                counted(found.total_available, "tool")
            ))?,
            false => say(results(&found))?,
        }
        if let Some(note) = &found.note {
            say(plain(note))?;
        }
        say(footer(&found))
    })
}

fn results(found: &Searched) -> PlainTable {
    let mut table = table(&["FITS", "TOOL", "RISK", "WHAT IT DOES"]);
    for tool in &found.tools {
        table.add_row([
            fits(tool),
            plain(&tool.tool_id),
            tool.risk_level.as_str().to_owned(),
            one_line(&tool.description, 100),
        ]);
    }
    table
}

/// Its score, with a mark where it does something else than what is looked for.
fn fits(tool: &Tool) -> String {
    let mark = if tool.fits { "" } else { " ?" };
    format!("{:.2}{mark}", tool.relevance_score)
}

fn footer(found: &Searched) -> String {
    let Coverage {
        tools,
        by_meaning,
        waiting,
        ..
    } = found.index;
    let mut footer = format!(
        "{} of {}, by {}, in {:.0} ms",
        found.tools.len(),
        counted(found.total_available, "tool"),
        found.search_strategy,
        found.query_time_ms
    );
    if waiting > 0 {
        footer += &format!("; {by_meaning} of {tools} can be found by meaning so far");
    }
    footer
}
