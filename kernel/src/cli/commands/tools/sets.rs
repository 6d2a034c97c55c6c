//! `mgp sets list|show`.

use mgp_engine::doors::suggestions::nearest_name;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::sets::{List, ListedSet, ListedSets};
use serde_json::json;

use crate::cli::args::Sets;
use crate::cli::client::{CliContext, parse_result};
use crate::cli::commands::agents;
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_error, print_line};
use crate::cli::text_format::sanitize_line;

pub(in crate::cli::commands) fn run(context: &CliContext, typed: &Sets) -> Result<(), Failure> {
    match typed {
        Sets::List => list(context),
        Sets::Show(typed) => info(context, &typed.name),
    }
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let answer = context.call(List::METHOD, &json!({}), "asking the kernel")?;
    context.print_answer(&answer, |ListedSets { sets }| {
        if sets.is_empty() {
            return print_line("no sets: [sets.NAME] in mgp.toml makes one");
        }
        let mut table = new_table(&[
            "SET",
            "SERVERS",
            "TOOLS",
            "EXCEPT",
            "TOOLS NOW",
            "HELD TO IT",
        ]);
        for set in &sets {
            let now = set.offered.len().to_string();
            let lists = [&set.servers, &set.tools, &set.except].map(|list| join_or_dash(list));
            let [servers, tools, except] = lists;
            table.add_row([
                sanitize_line(&set.name),
                servers,
                tools,
                except,
                now,
                join_or_dash(&set.agents),
            ]);
        }
        print_line(table)?;
        sets.iter().for_each(warn_unknown_members);
        Ok(())
    })
}

fn info(context: &CliContext, name: &str) -> Result<(), Failure> {
    let set = find_set(context, name)?;
    if context.json {
        let set = serde_json::to_value(&set).map_err(|e| Failure::Other(e.to_string()))?;
        return print_line(set);
    }
    let url = http_endpoint(context)?.map(|url| format!("{url}/p/{}", set.name));
    let url = url.unwrap_or_else(|| "no HTTP door is open".into());
    let rows = [
        ("set", sanitize_line(&set.name)),
        ("url", sanitize_line(&url)),
        (
            "program",
            format!("mgp stdio --set {}", sanitize_line(&set.name)),
        ),
        ("servers", join_or_dash(&set.servers)),
        ("tools", join_or_dash(&set.tools)),
        ("except", join_or_dash(&set.except)),
        ("held to it", join_or_dash(&set.agents)),
        ("tools now", join_or_dash(&set.offered)),
    ];
    for (what, value) in rows {
        print_line(format_args!("{what:<11} {value}"))?;
    }
    warn_unknown_members(&set);
    Ok(())
}

/// The HTTP endpoint of the running kernel.
fn http_endpoint(context: &CliContext) -> Result<Option<String>, Failure> {
    let doors = context.status()?.map(|status| status.doors);
    let doors = doors.unwrap_or_default();
    let url = doors.iter().find_map(|door| agents::endpoint_url(door));
    Ok(url.map(str::to_owned))
}

/// The set of this name; an unknown one is rejected with a suggestion.
pub(in crate::cli::commands) fn find_set(
    context: &CliContext,
    name: &str,
) -> Result<ListedSet, Failure> {
    let answer = context.call(List::METHOD, &json!({}), "asking the kernel")?;
    let ListedSets { sets } = parse_result(&answer)?;
    let near = nearest_name(name, sets.iter().map(|set| &*set.name)).map(str::to_owned);
    sets.into_iter()
        .find(|set| set.name == name)
        .ok_or_else(|| {
            let near = near.map(|near| format!(" (did you mean {near}?)"));
            Failure::Usage(format!(
                "no set {}{}; `mgp sets list` shows the known ones",
                sanitize_line(name),
                near.unwrap_or_default()
            ))
        })
}

fn warn_unknown_members(set: &ListedSet) {
    for unknown in &set.unknown {
        print_error(sanitize_line(unknown));
    }
    if !set.starting.is_empty() {
        print_error(sanitize_line(&format!(
            "{}: {} is still starting; what it offers is not known yet",
            set.name,
            set.starting.join(", ")
        )));
    }
}

fn join_or_dash(list: &[String]) -> String {
    match list {
        [] => "-".to_owned(),
        list => sanitize_line(&list.join(", ")),
    }
}
