//! The keys about extensions of MCP: what a server is told of clients, and what of it exists at `/mcp`.

use std::collections::BTreeSet;
use std::sync::Arc;

use mgp_engine::calls::extensions::is_relayable_method;
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::servers::spec::default_client_extensions;
use mgp_protocol::mcp::extensions::{is_identifier, is_negotiated_by_kernel};
use serde_json::{Map, Value};
use toml::de::DeValue;

use crate::config::parsing::Section;

/// Most methods of one server.
const METHODS_MAX: usize = 64;

/// `client_extensions`: identifiers with their settings, as a JSON object.
pub(super) fn read_client_extensions(entry: &mut Section<'_, '_, '_>) -> Arc<str> {
    let Some(declared) = entry.table("client_extensions") else {
        return default_client_extensions();
    };
    let mut extensions = Map::new();
    for (id, settings) in declared {
        let name = id.get_ref();
        let problem = match to_json(settings.get_ref()) {
            _ if !is_identifier(name) => " must have a prefix, like `com.example/name`",
            _ if is_negotiated_by_kernel(name) => " is negotiated by the kernel itself",
            Some(json @ Value::Object(_)) => {
                extensions.insert(name.to_string(), json);
                continue;
            }
            Some(_) | None => " wants a table of settings without dates, such as `{}`",
        };
        entry.reject_key(id.span(), name, problem);
    }
    Value::Object(extensions).to_string().into()
}

/// `merged_app_tools` and `merged_methods`.
pub(super) fn read_merged(entry: &mut Section<'_, '_, '_>, rules: &mut ToolRules) {
    entry.flag("merged_app_tools", &mut rules.merged_app_tools);
    let methods = entry.texts("merged_methods").unwrap_or_default();
    let mut allowed = BTreeSet::new();
    for method in methods {
        let name = *method.get_ref();
        if !is_relayable_method(name) {
            let why =
                " is no method of an extension: those of MCP and of the kernel are not relayed";
            entry.reject_key(method.span(), name, why);
        } else if allowed.len() == METHODS_MAX {
            let why = format!(" is one too many: at most {METHODS_MAX} methods");
            entry.reject_key(method.span(), name, &why);
        } else {
            allowed.insert(name.to_owned());
        }
    }
    rules.merged_methods = allowed;
}

fn to_json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
            Value::Number(number.into())
        }
        DeValue::Float(number) => {
            let number: f64 = number.as_str().parse().ok()?;
            Value::Number(serde_json::Number::from_f64(number)?)
        }
        DeValue::Array(items) => {
            let items = items.iter().map(|item| to_json(item.get_ref()));
            Value::Array(items.collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let members = table
                .iter()
                .map(|(name, value)| Some((name.get_ref().to_string(), to_json(value.get_ref())?)));
            Value::Object(members.collect::<Option<_>>()?)
        }
        DeValue::Datetime(_) => return None,
    })
}
