//! What is looked at before a call of a tool leaves the kernel: one list, for the first time and for each
//! time the call goes on after it waited.

pub mod access;
pub mod confirmation;
mod permissions;
mod pins;
pub(crate) mod schema;
pub mod validators;

use std::sync::Arc;

use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use self::access::{Admission, not_granted};
use self::confirmation::ConfirmationRules;
use self::validators::Validation;
use crate::Context;
use crate::rates::Rates;
use mgp_callers::request::{Caller, Request};
use mgp_policy::access::AccessHandle;
use mgp_policy::approvals::ApprovalsHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_servers::link::FinalCheck;

/// Who is asked whether a call may leave, and what they go by.
#[derive(Debug)]
pub struct Policies {
    /// Who may call what.
    pub access: AccessHandle,
    /// What servers may do.
    pub permissions: PermissionsHandle,
    /// What tools were when they were approved.
    pub pins: PinsHandle,
    /// What waits for a person.
    pub approvals: ApprovalsHandle,
    /// How many calls each agent may make.
    pub rates: Rates,
    /// Who looks at arguments.
    pub validation: Validation,
    /// How a person's yes is had.
    pub confirmation: ConfirmationRules,
}

/// One thing that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// The caller may call the tool (MGP §5).
    Access,
    /// The arguments fit the schema of the tool (CMCP-009).
    Schema,
    /// The tool is the one that was approved (MGP-202).
    Pin,
    /// The server of the tool has what a call of it needs (MGP-050).
    Permissions,
    /// The arguments are safe (MGP §4.5, §7).
    Validators,
    /// A person said yes where one must (MGP §4.4).
    Confirmation,
}

/// All of them, in the order in which they are made.
const CHECKS: [Check; 6] = [
    Check::Access,
    Check::Schema,
    Check::Pin,
    Check::Permissions,
    Check::Validators,
    Check::Confirmation,
];

/// A call of a tool as it is checked. It is asked again right before each time it leaves.
#[derive(Debug)]
pub(crate) struct ToolCall<'a> {
    cx: &'a Context,
    caller: &'a Caller,
    /// What the caller calls the tool.
    name: &'a str,
    tool: &'a Arc<CatalogTool>,
    admission: Admission<'a>,
}

impl<'a> ToolCall<'a> {
    /// A call of which nothing is known yet.
    pub(crate) fn new(
        cx: &'a Context,
        caller: &'a Caller,
        name: &'a str,
        tool: &'a Arc<CatalogTool>,
    ) -> Self {
        let own_name = Some(&*tool.own_name);
        let admission = Admission::new(cx, caller, &tool.server, own_name, not_granted(name));
        Self {
            cx,
            caller,
            name,
            tool,
            admission,
        }
    }

    /// Makes all checks of a new call.
    ///
    /// # Errors
    /// The first that failed, and what its caller reads.
    pub(crate) async fn passes(
        &self,
        request: &Request,
        arguments: Option<&RawValue>,
    ) -> Result<(), (Check, Refusal)> {
        for check in CHECKS {
            let passed = match check {
                Check::Access | Check::Pin | Check::Permissions => self.again(check),
                Check::Schema => schema::arguments(self.name, self.tool, arguments),
                Check::Validators => {
                    let arguments = arguments.map_or("{}", RawValue::get);
                    self.cx
                        .policies
                        .validation
                        .judge(self.tool, arguments)
                        .await
                }
                Check::Confirmation => {
                    let arguments = arguments.map_or("{}", RawValue::get);
                    confirmation::confirmed(self.cx, request, self.name, self.tool, arguments).await
                }
            };
            passed.map_err(|refusal| (check, refusal))?;
        }
        Ok(())
    }

    /// Makes one check of a call that waited. What was found of its arguments holds as long as the call
    /// lives, and so does a person's yes.
    fn again(&self, check: Check) -> Result<(), Refusal> {
        match check {
            Check::Access => self.admission.still(),
            Check::Pin => pins::approved(self.cx, self.caller, self.name, self.tool),
            Check::Permissions => permissions::permitted(self.cx, self.name, self.tool),
            Check::Schema | Check::Validators | Check::Confirmation => Ok(()),
        }
    }
}

impl FinalCheck for ToolCall<'_> {
    fn still(&self) -> Result<(), Refusal> {
        CHECKS.into_iter().try_for_each(|check| self.again(check))
    }
}
