//! `mgp sets list|show`.

use mgp_engine::doors::nearest::nearest_name;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::sets::{List, ListedSet, ListedSets};
use serde_json::json;

use crate::cli::args::Sets;
use crate::cli::client::{CliContext, read};
use crate::cli::commands::agents;
use crate::cli::failure::Failure;
use crate::cli::print::{report, say, table};
use crate::cli::words::plain;

pub(in crate::cli::commands) fn run(context: &CliContext, typed: &Sets) -> Result<(), Failure> {
    match typed {
        Sets::List => list(context),
        Sets::Show(typed) => info(context, &typed.name),
    }
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let answer = context.ask(List::METHOD, &json!({}), "asking the kernel")?;
    context.show(&answer, |ListedSets { sets }| {
        if sets.is_empty() {
            return say("no sets: [sets.NAME] in mgp.toml makes one");
        }
        let mut table = table(&[
            "SET",
            "SERVERS",
            "TOOLS",
            "EXCEPT",
            "TOOLS NOW",
            "HELD TO IT",
        ]);
        for set in &sets {
            let now = set.offered.len().to_string();
            let lists = [&set.servers, &set.tools, &set.except].map(|list| words(list));
            let [servers, tools, except] = lists;
            table.add_row([
                plain(&set.name),
                servers,
                tools,
                except,
                now,
                words(&set.agents),
            ]);
        }
        say(table)?;
        sets.iter().for_each(tell_unknown);
        Ok(())
    })
}

fn info(context: &CliContext, name: &str) -> Result<(), Failure> {
    let set = named(context, name)?;
    if context.json {
        let set = serde_json::to_value(&set).map_err(|e| Failure::Other(e.to_string()))?;
        return say(set);
    }
    let url = door(context)?.map(|url| format!("{url}/p/{}", set.name));
    let url = url.unwrap_or_else(|| "no HTTP door is open".into());
    let rows = [
        ("set", plain(&set.name)),
        ("url", plain(&url)),
        ("program", format!("mgp stdio --set {}", plain(&set.name))),
        ("servers", words(&set.servers)),
        ("tools", words(&set.tools)),
        ("except", words(&set.except)),
        ("held to it", words(&set.agents)),
        ("tools now", words(&set.offered)),
    ];
    for (what, value) in rows {
        say(format_args!("{what:<11} {value}"))?;
    }
    tell_unknown(&set);
    Ok(())
}

/// Where the kernel that runs is reached over HTTP.
fn door(context: &CliContext) -> Result<Option<String>, Failure> {
    let doors = context.status()?.map(|status| status.doors);
    let doors = doors.unwrap_or_default();
    let url = doors.iter().find_map(|door| agents::url(door));
    Ok(url.map(str::to_owned))
}

/// The set of that name; refuses one that there is not, with the nearest.
pub(in crate::cli::commands) fn named(
    context: &CliContext,
    name: &str,
) -> Result<ListedSet, Failure> {
    let answer = context.ask(List::METHOD, &json!({}), "asking the kernel")?;
    let ListedSets { sets } = read(&answer)?;
    let near = nearest_name(name, sets.iter().map(|set| &*set.name)).map(str::to_owned);
    sets.into_iter()
        .find(|set| set.name == name)
        .ok_or_else(|| {
            let near = near.map(|near| format!(" (did you mean {near}?)"));
            Failure::Usage(format!(
                "no set {}{}; `mgp sets list` shows the known ones",
                plain(name),
                near.unwrap_or_default()
            ))
        })
}

fn tell_unknown(set: &ListedSet) {
    for unknown in &set.unknown {
        report(plain(unknown));
    }
    if !set.starting.is_empty() {
        report(plain(&format!(
            "{}: {} is still starting; what it offers is not known yet",
            set.name,
            set.starting.join(", ")
        )));
    }
}

fn words(list: &[String]) -> String {
    match list {
        [] => "-".to_owned(),
        list => plain(&list.join(", ")),
    }
}
