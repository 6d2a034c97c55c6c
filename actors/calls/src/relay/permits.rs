//! What the server of a tool may do, and whether the tool is the one that was approved (MGP §3, §4.3).

use mgp_engine::policy::permissions::Lacking;
use mgp_engine::tools::catalog::{CatalogTool, ListKind, NamedItem};
use mgp_protocol::refusal::{Denial, Refusal};

use super::Relay;
use super::access::Admitted;
use mgp_callers::request::Caller;
use mgp_servers::link::FinalCheck;

/// FinalCheck to call a tool, whose server has what it needs for that.
#[derive(Debug)]
pub(super) struct Permitted<'a> {
    admitted: Admitted<'a>,
    relay: &'a Relay,
    caller: &'a Caller,
    name: &'a str,
    tool: &'a CatalogTool,
}

impl Permitted<'_> {
    fn may(&self) -> Result<(), Refusal> {
        let CatalogTool {
            server,
            own_name,
            requirements,
            ..
        } = self.tool;
        if self.relay.pins.blocks(server, own_name) {
            return Err(self.relay.absent(self.caller, self.name.to_owned()));
        }
        let judged = self
            .relay
            .permissions
            .may(server, &requirements.permissions);
        judged.map_err(|lacking| lacks(self.name, &lacking))
    }
}

impl FinalCheck for Permitted<'_> {
    fn still(&self) -> Result<(), Refusal> {
        self.admitted.still()?;
        self.may()
    }
}

impl Relay {
    /// The server of the tool has what a call of it needs, now, and the tool is the one that was
    /// approved; looked at again right before the call leaves.
    ///
    /// # Errors
    /// 1000 (MGP-050), which names the first that is missing; what [`Self::absent`] says.
    pub(super) fn permit<'a>(
        &'a self,
        caller: &'a Caller,
        admitted: Admitted<'a>,
        name: &'a str,
        tool: &'a CatalogTool,
    ) -> Result<Permitted<'a>, Refusal> {
        let permitted = Permitted {
            admitted,
            relay: self,
            caller,
            name,
            tool,
        };
        permitted.may()?;
        Ok(permitted)
    }

    /// A tool that is not there: it changed, or its server is away (MGP-193), as far as the caller may
    /// know.
    pub(super) fn absent(&self, caller: &Caller, name: String) -> Refusal {
        let named = NamedItem {
            view: &caller.view,
            kind: ListKind::Tools,
            name: &name,
        };
        let why = self.changed(caller, &name);
        let why = why.or_else(|| self.standing(caller, named));
        why.unwrap_or(Refusal::UnknownTool(name))
    }

    /// A tool that changed is gone for everybody; who speaks MGP and may call it hears why (MGP-202).
    fn changed(&self, caller: &Caller, name: &str) -> Option<Refusal> {
        if !caller.mgp.says_codes() {
            return None;
        }
        let (server, own) = self.pins.meant(&caller.view, name)?;
        let unknown = Refusal::UnknownTool(name.to_owned());
        self.admit(caller, &server, Some(&own), unknown).ok()?;
        Some(Refusal::Denied(Box::new(Denial::Disabled {
            tool: name.to_owned(),
            reason: format!(
                "its definition is not the one that was approved; `mgp pending` shows the operator the change of server {server}"
            ),
        })))
    }
}

fn lacks(name: &str, lacking: &Lacking) -> Refusal {
    let missing = lacking.permissions.first();
    Refusal::Denied(Box::new(Denial::Permission {
        tool: name.to_owned(),
        permission: missing.map(ToString::to_string).unwrap_or_default(),
    }))
}
