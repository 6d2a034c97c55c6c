//! Who may register a server, and under which name.

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::Register;

use super::{RegistrationContext, RegistrationRefusal, RuleFinding};

/// Names of what is no server, whatever letters they are written in.
const RESERVED_IDS: [&str; 16] = [
    "admin", "agent", "all", "any", "core", "everyone", "kernel", "local", "mcp", "mgp", "node",
    "none", "operator", "root", "self", "system",
];
/// Beginnings of names that belong to the kernel, to agents and to other nodes.
const RESERVED_PREFIXES: [&str; 6] = ["kernel", "mgp", "agent", "node", "operator", "system"];

const NAME_HINT: &str = "take another name, such as dynamic.csv_tools";

/// Whether this caller may register what it asks; answers who it is, for the record.
pub(super) fn check_caller(
    ask: &Register,
    terms: &RegistrationContext<'_>,
) -> Result<String, RegistrationRefusal> {
    let Some(agent) = terms.caller.agent() else {
        return Ok(terms.caller.name().to_owned());
    };
    if !terms.allow_agents {
        let told = "registering servers is for the operator; ask for `mgp servers add`, or for agents to be allowed to";
        return Err(RegistrationRefusal::Forbidden(told.into()));
    }
    if !terms.can_run_code {
        let told = format!(
            "{agent} needs the permission code_execution to register a server; ask the operator for it"
        );
        return Err(RegistrationRefusal::Forbidden(told));
    }
    // an agent is who its connection says, and nobody else.
    match ask.created_by.as_deref() {
        Some(claimed) if claimed != agent.as_str() => Err(RegistrationRefusal::Forbidden(format!(
            "{agent} can register servers in its own name only; leave created_by out"
        ))),
        _ => Ok(agent.to_string()),
    }
}

/// Judges the name: it becomes part of tool names, of paths and of decisions people make.
pub(super) fn check_id(text: &str, taken: &[ServerId]) -> Result<ServerId, RuleFinding> {
    let found = |rule, reason: String| RuleFinding::new(rule, "/id", reason, NAME_HINT);
    let id = ServerId::parse(text).map_err(|bad| found("id", bad.to_string()))?;
    if text.contains("..") || text.starts_with(['.', '-']) || text.ends_with('.') {
        let reason = "a name that could be read as a path or an option".to_owned();
        return Err(found("id", reason));
    }
    let family = text.split(['.', '_', '-']).next().unwrap_or_default();
    let family = family.to_ascii_lowercase();
    let whole = RESERVED_IDS.contains(&&*text.to_ascii_lowercase());
    if whole || RESERVED_PREFIXES.contains(&&*family) {
        return Err(found(
            "reserved",
            format!("{text} is a name of the kernel's own"),
        ));
    }
    if taken.contains(&id) {
        let reason = format!("there is a server {text} already");
        return Err(found("duplicate", reason));
    }
    let like = taken
        .iter()
        .find(|other| fold_lookalikes(other.as_str()) == fold_lookalikes(text));
    match like {
        Some(other) => Err(found(
            "imitation",
            format!("{text} can be taken for {other}, which is there already"),
        )),
        None => Ok(id),
    }
}

/// What is left of a name for somebody who reads it in a hurry.
fn fold_lookalikes(name: &str) -> String {
    let plain = name.chars().filter(char::is_ascii_alphanumeric);
    let alike = plain.map(|c| match c.to_ascii_lowercase() {
        '0' => 'o',
        '1' | 'i' => 'l',
        c => c,
    });
    alike.collect()
}
