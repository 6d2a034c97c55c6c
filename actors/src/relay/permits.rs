//! What the server of a tool may do, and whether the tool is the one that was approved (MGP §3, §4.3).

use mgp_engine::catalog::Tool;
use mgp_engine::permissions::Lacking;
use mgp_protocol::refusal::{Denial, Refusal};

use super::Relay;
use super::access::Admitted;
use crate::link::Leave;
use crate::permissions::PermissionsHandle;
use crate::request::Caller;

/// Leave to call a tool, whose server has what it needs for that.
#[derive(Debug)]
pub(super) struct Permitted<'a> {
    admitted: Admitted<'a>,
    permissions: &'a PermissionsHandle,
    name: &'a str,
    tool: &'a Tool,
}

impl Permitted<'_> {
    fn may(&self) -> Result<(), Refusal> {
        let Tool { server, duties, .. } = self.tool;
        let judged = self.permissions.may(server, &duties.permissions);
        judged.map_err(|lacking| lacks(self.name, &lacking))
    }
}

impl Leave for Permitted<'_> {
    fn still(&self) -> Result<(), Refusal> {
        self.admitted.still()?;
        self.may()
    }
}

impl Relay {
    /// The server of the tool has what a call of it needs, now; looked at again right before the call
    /// leaves.
    ///
    /// # Errors
    /// 1000 (MGP-050), which names the first that is missing.
    pub(super) fn permit<'a>(
        &'a self,
        admitted: Admitted<'a>,
        name: &'a str,
        tool: &'a Tool,
    ) -> Result<Permitted<'a>, Refusal> {
        let permitted = Permitted {
            admitted,
            permissions: &self.permissions,
            name,
            tool,
        };
        permitted.may()?;
        Ok(permitted)
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
