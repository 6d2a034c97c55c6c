//! The checks of a tool call. All run before it first leaves the kernel, and again each time it leaves after a wait.

pub mod access;
mod compiled_schemas;
pub(crate) mod conditions;
pub(crate) mod confirmation;
mod permissions;
mod pins;
pub(crate) mod schema;
pub(crate) mod unlisted_names;
pub(crate) mod validators;

use std::sync::Arc;

use mgp_engine::policy::pins::Effect;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use self::access::{Admission, not_granted_refusal};
pub use self::compiled_schemas::CompiledSchemas;
use self::conditions::ConditionalCall;
pub use self::conditions::LinkLookups;
use self::confirmation::ConfirmationRules;
use self::validators::Validation;
use crate::Context;
use crate::rates::Rates;
use mgp_callers::request::{Caller, Request};
use mgp_policy::{AccessHandle, ApprovalsHandle, PermissionsHandle, PinsHandle};
use mgp_servers::link::FinalCheck;

/// What the checks need.
#[derive(Debug)]
pub struct Policies {
    /// Access control: who may call what.
    pub access: AccessHandle,
    /// The permissions of servers.
    pub permissions: PermissionsHandle,
    /// Tools as they were when they were approved.
    pub pins: PinsHandle,
    /// Questions that wait for a person.
    pub approvals: ApprovalsHandle,
    /// How many calls each agent may make in a time.
    pub rates: Rates,
    /// Schemas that are compiled when they are needed.
    pub schemas: CompiledSchemas,
    /// The validators of arguments.
    pub validation: Validation,
    /// Follows links, for conditions of grants.
    pub links: LinkLookups,
    /// How a dangerous call is confirmed.
    pub confirmation: ConfirmationRules,
}

impl Policies {
    /// Counts a call of an agent.
    ///
    /// # Errors
    /// The limit of the agent or of one of its groups that is reached.
    pub(crate) fn count_call(&self, caller: &Caller) -> Result<(), Refusal> {
        self.rates.count_call(&self.access.table(), caller)
    }

    /// Counts the bytes of a call that was made.
    pub(crate) fn count_bytes(&self, caller: &Caller, bytes: usize) {
        self.rates.count_bytes(&self.access.table(), caller, bytes);
    }
}

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// The caller may call the tool (MGP §5), and has apps if the tool is only for those.
    Access,
    /// The arguments fit the schema of the tool (CMCP-009).
    Schema,
    /// A condition holds, if the tool is granted on one.
    Condition,
    /// The tool is the one that was approved (MGP-202).
    Pin,
    /// The server of the tool has what a call of it needs (MGP-050).
    Permissions,
    /// The arguments are safe (MGP §4.5, §7).
    Validators,
    /// A person approved where that is required (MGP §4.4).
    Confirmation,
}

/// All checks, in the order in which they are made.
const CHECKS: [Check; 7] = [
    Check::Access,
    Check::Schema,
    Check::Condition,
    Check::Pin,
    Check::Permissions,
    Check::Validators,
    Check::Confirmation,
];

/// The checks of one call of a tool; repeated right before each time it is sent.
#[derive(Debug)]
pub(crate) struct ToolCallChecks<'a> {
    cx: &'a Context,
    caller: &'a Caller,
    /// The tool's name as the caller knows it.
    name: &'a str,
    tool: &'a Arc<CatalogTool>,
    /// Its arguments, an object in JSON.
    arguments: &'a str,
    admission: Admission<'a>,
    /// The most that the tool may do.
    effect_limit: Option<Effect>,
}

impl<'a> ToolCallChecks<'a> {
    /// The checks of a call, none of them made yet.
    pub(crate) fn new(
        cx: &'a Context,
        caller: &'a Caller,
        name: &'a str,
        tool: &'a Arc<CatalogTool>,
        arguments: &'a str,
    ) -> Self {
        let own_name = Some(&*tool.own_name);
        let admission = Admission::new(
            cx,
            caller,
            &tool.server,
            own_name,
            not_granted_refusal(name),
        );
        Self {
            cx,
            caller,
            name,
            tool,
            arguments,
            admission,
            effect_limit: None,
        }
    }

    /// The same for a call that is refused if its tool may do more than this.
    pub(crate) fn limited(mut self, effect: Option<Effect>) -> Self {
        self.effect_limit = effect;
        self
    }

    /// Makes all checks of a new call.
    ///
    /// # Errors
    /// The first that failed, and what its caller reads.
    pub(crate) async fn run(
        &self,
        request: &Request,
        arguments: Option<&RawValue>,
    ) -> Result<(), (Check, Refusal)> {
        for check in CHECKS {
            let passed = match check {
                Check::Access | Check::Pin | Check::Permissions => self.recheck_one(check),
                Check::Condition => match self.conditional_call() {
                    Some(call) => call.check_with_links().await,
                    None => Ok(()),
                },
                Check::Schema => {
                    let schemas = &self.cx.policies.schemas;
                    schema::check_arguments(schemas, self.name, self.tool, arguments).await
                }
                Check::Validators => {
                    let arguments = arguments.map_or("{}", RawValue::get);
                    self.cx
                        .policies
                        .validation
                        .check(self.tool, arguments)
                        .await
                }
                Check::Confirmation => {
                    let arguments = arguments.map_or("{}", RawValue::get);
                    confirmation::confirm_call(self.cx, request, self.name, self.tool, arguments)
                        .await
                }
            };
            passed.map_err(|refusal| (check, refusal))?;
        }
        Ok(())
    }

    /// The call, if its access was found to depend on a condition.
    fn conditional_call(&self) -> Option<ConditionalCall<'_>> {
        self.admission.is_conditional().then(|| ConditionalCall {
            cx: self.cx,
            principal: self.admission.principal(),
            name: self.name,
            tool: self.tool,
            arguments: self.arguments,
        })
    }

    /// Repeats one check of a call that waited. The verdict on its arguments and a person's approval hold for the
    /// whole call and are not requested again.
    fn recheck_one(&self, check: Check) -> Result<(), Refusal> {
        match check {
            Check::Access if self.tool.is_app_only() && !access::has_apps(self.caller) => {
                Err(Refusal::UnknownTool(self.name.to_owned()))
            }
            Check::Access => self.admission.recheck(),
            // Links were followed before, and may change at any time.
            Check::Condition => match self.conditional_call() {
                Some(call) => call.check(),
                None => Ok(()),
            },
            Check::Pin => {
                pins::check_approved(self.cx, self.caller, self.name, self.tool)?;
                pins::check_effect(self.cx, self.name, self.tool, self.effect_limit)
            }
            Check::Permissions => permissions::check_permissions(self.cx, self.name, self.tool),
            Check::Schema | Check::Validators | Check::Confirmation => Ok(()),
        }
    }
}

impl FinalCheck for ToolCallChecks<'_> {
    fn recheck(&self) -> Result<(), Refusal> {
        CHECKS
            .into_iter()
            .try_for_each(|check| self.recheck_one(check))
    }
}
