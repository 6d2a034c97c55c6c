//! What the server of a tool may do, and whether the tool is the one that was approved (MGP §3, §4.3).

use mgp_engine::catalog::Tool;
use mgp_engine::permissions::Lacking;
use mgp_protocol::refusal::{Denial, Refusal};

use super::Relay;
use crate::request::Caller;

impl Relay {
    /// The call needs what its server has. Looked at when the call comes, and again right before it
    /// leaves: what was taken back meanwhile holds.
    ///
    /// # Errors
    /// 1000 (MGP-050), which names the first that is missing.
    pub(super) fn permit(&self, name: &str, tool: &Tool) -> Result<(), Refusal> {
        let judged = self.permissions.may(&tool.server, &tool.duties.permissions);
        judged.map_err(|lacking| lacks(name, &lacking))
    }

    /// A tool that is not there: one that changed is gone for everybody, and the operator is told
    /// why.
    pub(super) fn absent(&self, caller: &Caller, name: String) -> Refusal {
        let reason = match caller.operator {
            true => self.pins.why(&caller.view, &name),
            false => None,
        };
        match reason {
            Some(reason) => Refusal::Denied(Box::new(Denial::Disabled { tool: name, reason })),
            None => Refusal::UnknownTool(name),
        }
    }
}

fn lacks(name: &str, lacking: &Lacking) -> Refusal {
    let missing = lacking.permissions.first();
    Refusal::Denied(Box::new(Denial::Permission {
        tool: name.to_owned(),
        permission: missing.map(ToString::to_string).unwrap_or_default(),
    }))
}
