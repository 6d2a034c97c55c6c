//! Checks of the caller and the name of a registration.

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::Register;

use super::{RegistrationContext, RegistrationRefusal, RuleFinding};

/// Names that no server may have, in any case.
const RESERVED_IDS: [&str; 16] = [
    "admin", "agent", "all", "any", "core", "everyone", "kernel", "local", "mcp", "mgp", "node",
    "none", "operator", "root", "self", "system",
];
/// Name prefixes of the kernel, agents and other nodes.
const RESERVED_PREFIXES: [&str; 6] = ["kernel", "mgp", "agent", "node", "operator", "system"];

const NAME_HINT: &str = "take another name, such as dynamic.csv_tools";

/// Checks whether the caller may register the server. Returns its name for the audit log.
pub(super) fn check_caller(
    request: &Register,
    context: &RegistrationContext<'_>,
) -> Result<String, RegistrationRefusal> {
    let Some(agent) = context.caller.agent() else {
        return Ok(context.caller.name().to_owned());
    };
    if !context.allow_agents {
        let reason = "registering servers is for the operator; ask for `mgp servers add`, or for agents to be allowed to";
        return Err(RegistrationRefusal::Forbidden(reason.into()));
    }
    if !context.can_run_code {
        let reason = format!(
            "{agent} needs the permission code_execution to register a server; ask the operator for it"
        );
        return Err(RegistrationRefusal::Forbidden(reason));
    }
    // an agent is identified by its connection.
    match request.created_by.as_deref() {
        Some(claimed) if claimed != agent.as_str() => Err(RegistrationRefusal::Forbidden(format!(
            "{agent} can register servers in its own name only; leave created_by out"
        ))),
        _ => Ok(agent.to_string()),
    }
}

/// Checks the name, which becomes part of tool names, paths and approvals.
pub(super) fn check_id(text: &str, taken: &[ServerId]) -> Result<ServerId, RuleFinding> {
    let finding = |rule, reason: String| RuleFinding::new(rule, "/id", reason, NAME_HINT);
    let id = ServerId::parse(text).map_err(|bad| finding("id", bad.to_string()))?;
    if text.contains("..") || text.starts_with(['.', '-']) || text.ends_with('.') {
        let reason = "a name that could be read as a path or an option".to_owned();
        return Err(finding("id", reason));
    }
    let family = text.split(['.', '_', '-']).next().unwrap_or_default();
    let family = family.to_ascii_lowercase();
    let is_reserved = RESERVED_IDS.contains(&&*text.to_ascii_lowercase());
    if is_reserved || RESERVED_PREFIXES.contains(&&*family) {
        return Err(finding(
            "reserved",
            format!("{text} is a name of the kernel's own"),
        ));
    }
    if taken.contains(&id) {
        let reason = format!("there is a server {text} already");
        return Err(finding("duplicate", reason));
    }
    let lookalike = taken
        .iter()
        .find(|other| fold_lookalikes(other.as_str()) == fold_lookalikes(text));
    match lookalike {
        Some(other) => Err(finding(
            "imitation",
            format!("{text} can be taken for {other}, which is there already"),
        )),
        None => Ok(id),
    }
}

/// Maps characters that a person may confuse to the same one.
fn fold_lookalikes(name: &str) -> String {
    let plain = name.chars().filter(char::is_ascii_alphanumeric);
    let folded = plain.map(|c| match c.to_ascii_lowercase() {
        '0' => 'o',
        '1' | 'i' => 'l',
        c => c,
    });
    folded.collect()
}
