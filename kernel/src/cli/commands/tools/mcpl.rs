//! `mgp mcpl sets list|enable|disable|reset`, `mgp mcpl forget`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::mcpl::{
    FeatureSetList, Forget, Forgotten, ListedFeatureSet, Sets, Switch, Switched,
};
use serde_json::json;

use crate::cli::args::{FeatureSetSelection, FeatureSets, ForgetScopes, Mcpl};
use crate::cli::client::{CliContext, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_error, print_line};
use crate::cli::text_format::{first_line, sanitize_line};

/// Widest column of a table, in characters.
const COLUMN_WIDTH_MAX: usize = 60;
/// Progress title.
const PROGRESS_TITLE: &str = "asking the kernel";

pub(in crate::cli::commands) fn run(context: &CliContext, typed: Mcpl) -> Result<(), Failure> {
    match typed {
        Mcpl::Sets(FeatureSets::List) => list_feature_sets(context),
        Mcpl::Sets(FeatureSets::Enable(typed)) => set_enabled(context, typed, Some(true)),
        Mcpl::Sets(FeatureSets::Disable(typed)) => set_enabled(context, typed, Some(false)),
        Mcpl::Sets(FeatureSets::Reset(typed)) => set_enabled(context, typed, None),
        Mcpl::Forget(typed) => forget_scopes(context, typed),
    }
}

fn list_feature_sets(context: &CliContext) -> Result<(), Failure> {
    let answer = context.call(Sets::METHOD, &json!({}), PROGRESS_TITLE)?;
    context.print_answer(&answer, |FeatureSetList { servers, unknown }| {
        if servers.is_empty() {
            return print_line("no server that is connected speaks MCPL");
        }
        let mut table = new_table(&["SERVER", "FEATURE SET", "ENABLED", "BY", "USES", "FOR"]);
        for server in &servers {
            for set in &server.sets {
                table.add_row(vec![
                    first_line(&server.server, COLUMN_WIDTH_MAX),
                    first_line(&set.set, COLUMN_WIDTH_MAX),
                    if set.enabled { "yes" } else { "no" }.to_owned(),
                    first_line(&decision_label(set), COLUMN_WIDTH_MAX),
                    first_line(&usage_label(set), COLUMN_WIDTH_MAX),
                    first_line(&set.description, COLUMN_WIDTH_MAX),
                ]);
            }
        }
        print_line(table.trim_fmt())?;
        unknown
            .iter()
            .for_each(|unknown| print_error(sanitize_line(unknown)));
        Ok(())
    })
}

/// Who enabled or disabled it, and whether it declares more than was approved.
fn decision_label(set: &ListedFeatureSet) -> String {
    if set.waits {
        format!("more waits: mgp pending ({})", set.by)
    } else {
        set.by.clone()
    }
}

/// What a set uses, and whether it has scopes or can be rolled back.
fn usage_label(set: &ListedFeatureSet) -> String {
    let mut words = set.uses.clone();
    words.extend(set.scoped.then(|| "scoped".to_owned()));
    words.extend(set.rollback.then(|| "rollback".to_owned()));
    words.join(", ")
}

fn set_enabled(
    context: &CliContext,
    typed: FeatureSetSelection,
    enabled: Option<bool>,
) -> Result<(), Failure> {
    let params = Switch {
        server: typed.server,
        sets: typed.sets,
        enabled,
        yet_unknown: typed.yet_unknown,
    };
    let answer = context.call(Switch::METHOD, &params, PROGRESS_TITLE);
    let answer = answer.map_err(name_resolution::to_usage_failure)?;
    context.print_answer(
        &answer,
        |Switched {
             server,
             enabled,
             disabled,
         }| {
            let listed = |sets: &[String]| match sets {
                [] => "none".to_owned(),
                sets => sanitize_line(&sets.join(", ")),
            };
            print_line(format_args!(
                "{}: enabled {}",
                sanitize_line(&server),
                listed(&enabled)
            ))?;
            print_line(format_args!(
                "{}: disabled {}",
                sanitize_line(&server),
                listed(&disabled)
            ))
        },
    )
}

fn forget_scopes(context: &CliContext, typed: ForgetScopes) -> Result<(), Failure> {
    let params = Forget {
        server: typed.server,
        set: typed.set,
    };
    let answer = context.call(Forget::METHOD, &params, PROGRESS_TITLE);
    let answer = answer.map_err(name_resolution::to_usage_failure)?;
    context.print_answer(&answer, |Forgotten { scopes }| match scopes {
        0 => print_line("no approved scope was there"),
        1 => print_line("one approved scope is taken back"),
        many => print_line(format_args!("{many} approved scopes are taken back")),
    })
}
