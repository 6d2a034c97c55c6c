//! `mgp shares …`: what of this node the others see.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::shares::{Add, Changed, List, Remove, Share, Shares};
use serde_json::json;

use crate::cli::args;
use crate::cli::client::{CliContext, names};
use crate::cli::failure::Failure;
use crate::cli::print::{say, table};
use crate::cli::words::{one_line, plain};

/// Widest column of a table, in characters.
const WIDTH: usize = 60;
/// What is shown while the kernel takes its time.
const ASKING: &str = "asking the kernel";

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
            names::server(client, &typed.server).await?;
        }
        let answer = client.ask(Add::METHOD, &params, ASKING).await;
        answer.map_err(names::wrong)
    })?;
    context.show(&answer, |Changed { changed, notes }| {
        names::tell(&notes);
        match changed.first() {
            None => say(plain(&format!("{} is shared so already", typed.server))),
            Some(share) => say(plain(&format!(
                "shared: {}; agents there may call it once they are granted it, as in `mgp grants add AGENT@NODE {}`",
                in_words(share),
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
    // A server that is gone can still be shared, and be rid of that.
    let answer = context.ask(Remove::METHOD, &params, ASKING);
    let answer = answer.map_err(names::wrong)?;
    context.show(&answer, |Changed { changed, notes }| {
        names::tell(&notes);
        let ended: Vec<String> = changed
            .iter()
            .map(|share| plain(&format!("not shared any more: {}", in_words(share))))
            .collect();
        say(ended.join("\n"))
    })
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let answer = context.ask(List::METHOD, &json!({}), ASKING)?;
    context.show(&answer, |Shares { shares }| match shares.as_slice() {
        [] => say("nothing of this node is shared: `mgp shares add SERVER --to cluster` does that"),
        shares => say(listed(shares)),
    })
}

fn in_words(share: &Share) -> String {
    let Share {
        server, to, tools, ..
    } = share;
    match tools.as_str() {
        "*" => format!("{server}, with {to}"),
        tools => format!("{tools} of {server}, with {to}"),
    }
}

fn listed(shares: &[Share]) -> String {
    let mut table = table(&["SERVER", "TOOLS", "MEANS", "WITH", "NOTE"]);
    for share in shares {
        let tools = match share.tools.as_str() {
            "*" => "all".to_owned(),
            tools => one_line(tools, WIDTH),
        };
        let means = share.means.map(|means| means.to_string());
        table.add_row(vec![
            one_line(&share.server, WIDTH),
            tools,
            means.unwrap_or_else(|| "not listed yet".into()),
            one_line(&share.to, WIDTH),
            one_line(share.why.as_deref().unwrap_or_default(), WIDTH),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_told_as_it_was_typed() {
        let share = Share {
            server: "files".into(),
            to: "node:desk".into(),
            tools: "read_*".into(),
            means: Some(3),
            why: None,
        };
        assert_eq!(in_words(&share), "read_* of files, with node:desk");
        let whole = Share {
            tools: "*".into(),
            to: "cluster".into(),
            means: None,
            ..share.clone()
        };
        assert_eq!(in_words(&whole), "files, with cluster");
        let text = listed(&[share, whole]);
        assert!(
            text.contains("not listed yet") && text.contains("read_*"),
            "{text}"
        );
    }
}
