//! `mgp mcpl sets list|enable|disable|reset`, `mgp mcpl forget`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::mcpl::{
    FeatureSetList, Forget, Forgotten, ListedFeatureSet, Sets, Switch, Switched,
};
use serde_json::json;

use crate::cli::args::{FeatureSets, ForgetScopes, Mcpl, SwitchedSets};
use crate::cli::client::{CliContext, names};
use crate::cli::failure::Failure;
use crate::cli::print::{report, say, table};
use crate::cli::words::{one_line, plain};

/// Widest column of a table, in characters.
const WIDTH: usize = 60;
/// What is shown while the kernel takes its time.
const ASKING: &str = "asking the kernel";

pub(in crate::cli::commands) fn run(context: &CliContext, typed: Mcpl) -> Result<(), Failure> {
    match typed {
        Mcpl::Sets(FeatureSets::List) => list(context),
        Mcpl::Sets(FeatureSets::Enable(typed)) => switch(context, typed, Some(true)),
        Mcpl::Sets(FeatureSets::Disable(typed)) => switch(context, typed, Some(false)),
        Mcpl::Sets(FeatureSets::Reset(typed)) => switch(context, typed, None),
        Mcpl::Forget(typed) => forget(context, typed),
    }
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let answer = context.ask(Sets::METHOD, &json!({}), ASKING)?;
    context.show(&answer, |FeatureSetList { servers, unknown }| {
        if servers.is_empty() {
            return say("no server that is connected speaks MCPL");
        }
        let mut table = table(&["SERVER", "FEATURE SET", "ENABLED", "BY", "USES", "FOR"]);
        for server in &servers {
            for set in &server.sets {
                table.add_row(vec![
                    one_line(&server.server, WIDTH),
                    one_line(&set.set, WIDTH),
                    if set.enabled { "yes" } else { "no" }.to_owned(),
                    one_line(&decided(set), WIDTH),
                    one_line(&used(set), WIDTH),
                    one_line(&set.description, WIDTH),
                ]);
            }
        }
        say(table.trim_fmt())?;
        unknown.iter().for_each(|unknown| report(plain(unknown)));
        Ok(())
    })
}

/// Who says whether it is enabled, and that it declares more than was approved.
fn decided(set: &ListedFeatureSet) -> String {
    match set.waits {
        true => format!("more waits: mgp pending ({})", set.by),
        false => set.by.clone(),
    }
}

/// What a set uses, and that it has scopes or can be rolled back.
fn used(set: &ListedFeatureSet) -> String {
    let mut words = set.uses.clone();
    words.extend(set.scoped.then(|| "scoped".to_owned()));
    words.extend(set.rollback.then(|| "rollback".to_owned()));
    words.join(", ")
}

fn switch(context: &CliContext, typed: SwitchedSets, enabled: Option<bool>) -> Result<(), Failure> {
    let params = Switch {
        server: typed.server,
        sets: typed.sets,
        enabled,
        yet_unknown: typed.yet_unknown,
    };
    let answer = context.ask(Switch::METHOD, &params, ASKING);
    let answer = answer.map_err(names::wrong)?;
    context.show(
        &answer,
        |Switched {
             server,
             enabled,
             disabled,
         }| {
            let listed = |sets: &[String]| match sets {
                [] => "none".to_owned(),
                sets => plain(&sets.join(", ")),
            };
            say(format_args!(
                "{}: enabled {}",
                plain(&server),
                listed(&enabled)
            ))?;
            say(format_args!(
                "{}: disabled {}",
                plain(&server),
                listed(&disabled)
            ))
        },
    )
}

fn forget(context: &CliContext, typed: ForgetScopes) -> Result<(), Failure> {
    let params = Forget {
        server: typed.server,
        set: typed.set,
    };
    let answer = context.ask(Forget::METHOD, &params, ASKING);
    let answer = answer.map_err(names::wrong)?;
    context.show(&answer, |Forgotten { scopes }| match scopes {
        0 => say("no approved scope was there"),
        1 => say("one approved scope is taken back"),
        many => say(format_args!("{many} approved scopes are taken back")),
    })
}
