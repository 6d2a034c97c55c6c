//! `mgp shares …`: servers shared with other nodes.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::shares::{Add, Changed, List, Remove, Share, Shares};
use serde_json::json;

use crate::cli::args;
use crate::cli::client::{CliContext, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{first_line, sanitize_line};

/// Widest column of a table, in characters.
const COLUMN_WIDTH_MAX: usize = 60;
/// Progress title.
const PROGRESS_TITLE: &str = "asking the kernel";

pub(super) fn run(context: &CliContext, typed: &args::Shares) -> Result<(), Failure> {
    match typed {
        args::Shares::List => list(context),
        args::Shares::Add(typed) => share(context, typed),
        args::Shares::Remove(typed) => unshare(context, typed),
    }
}

fn share(context: &CliContext, typed: &args::Share) -> Result<(), Failure> {
    let params = Add {
        server: typed.server.clone(),
        to: typed.to.to_string(),
        tools: typed.tools.clone(),
        yet_unknown: typed.yet_unknown,
    };
    let answer = context.with_kernel(async |client| {
        if !typed.yet_unknown {
            name_resolution::resolve_server(client, &typed.server).await?;
        }
        let answer = client.call(Add::METHOD, &params, PROGRESS_TITLE).await;
        answer.map_err(name_resolution::to_usage_failure)
    })?;
    context.print_answer(&answer, |Changed { changed, notes }| {
        name_resolution::print_notes(&notes);
        match changed.first() {
            None => print_line(sanitize_line(&format!("{} is shared so already", typed.server))),
            Some(share) => print_line(sanitize_line(&format!(
                "shared: {}; agents there may call it once they are granted it, as in `mgp grants add AGENT@NODE {}`",
                render_share(share),
                share.server
            ))),
        }
    })
}

fn unshare(context: &CliContext, typed: &args::Unshare) -> Result<(), Failure> {
    let params = Remove {
        server: typed.server.clone(),
        to: typed.to.as_ref().map(ToString::to_string),
        tools: typed.tools.clone(),
    };
    // The share of a removed server can still be removed.
    let answer = context.call(Remove::METHOD, &params, PROGRESS_TITLE);
    let answer = answer.map_err(name_resolution::to_usage_failure)?;
    context.print_answer(&answer, |Changed { changed, notes }| {
        name_resolution::print_notes(&notes);
        let ended: Vec<String> = changed
            .iter()
            .map(|share| sanitize_line(&format!("not shared any more: {}", render_share(share))))
            .collect();
        print_line(ended.join("\n"))
    })
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let answer = context.call(List::METHOD, &json!({}), PROGRESS_TITLE)?;
    context.print_answer(&answer, |Shares { shares }| match shares.as_slice() {
        [] => print_line(
            "nothing of this node is shared: `mgp shares add SERVER --to cluster` does that",
        ),
        shares => print_line(render_shares(shares)),
    })
}

fn render_share(share: &Share) -> String {
    let Share {
        server, to, tools, ..
    } = share;
    match tools.as_str() {
        "*" => format!("{server}, with {to}"),
        tools => format!("{tools} of {server}, with {to}"),
    }
}

fn render_shares(shares: &[Share]) -> String {
    let mut table = new_table(&["SERVER", "TOOLS", "MEANS", "WITH", "NOTE"]);
    for share in shares {
        let tools = match share.tools.as_str() {
            "*" => "all".to_owned(),
            tools => first_line(tools, COLUMN_WIDTH_MAX),
        };
        let means = share.means.map(|means| means.to_string());
        table.add_row(vec![
            first_line(&share.server, COLUMN_WIDTH_MAX),
            tools,
            means.unwrap_or_else(|| "not listed yet".into()),
            first_line(&share.to, COLUMN_WIDTH_MAX),
            first_line(share.why.as_deref().unwrap_or_default(), COLUMN_WIDTH_MAX),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_printed_as_typed() {
        let share = Share {
            server: "files".into(),
            to: "node:desk".into(),
            tools: "read_*".into(),
            means: Some(3),
            why: None,
        };
        assert_eq!(render_share(&share), "read_* of files, with node:desk");
        let whole = Share {
            tools: "*".into(),
            to: "cluster".into(),
            means: None,
            ..share.clone()
        };
        assert_eq!(render_share(&whole), "files, with cluster");
        let text = render_shares(&[share, whole]);
        assert!(
            text.contains("not listed yet") && text.contains("read_*"),
            "{text}"
        );
    }
}
