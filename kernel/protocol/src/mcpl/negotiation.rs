//! `capabilities.experimental.mcpl` (MCPL §5).

use std::borrow::Cow;

use mgp_json::{Splice, can_contain_string, member};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::feature_sets::{Capability, DeclaredSets};
use super::{McplVersion, VERSION};

/// The most bytes of a version.
const VERSION_MAX: usize = 32;

/// The kernel's declaration to servers, as their host (MCPL §5.2): the members of both versions.
pub const HOST_DECLARATION: &str = r#"{"version":"0.4","versions":["0.4","0.5"],"pushEvents":true,"contextHooks":{"beforeInference":true,"afterInference":{"blocking":true}},"inferenceLifecycle":true,"inferenceRequest":{"streaming":true},"modelInfo":true,"featureSets":true,"channels":{"register":true,"publish":true,"observe":true,"incoming":true,"lifecycle":true,"streaming":true}}"#;

/// The declared features of either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct McplFeatures {
    /// The version that is spoken.
    pub version: McplVersion,
    /// `push/event`.
    pub push_events: bool,
    /// `context/beforeInference`.
    pub before_inference: bool,
    /// It is shown the user's message (0.5 §6.2).
    pub observe: bool,
    /// The positions at which it adds to a context (0.5 §6.2).
    pub inject: InjectFeatures,
    /// `inference/lifecycle` (0.5 §10.5).
    pub lifecycle: bool,
    /// `context/afterInference`.
    pub after_inference: bool,
    /// True if it is a request whose answer is awaited.
    pub blocking: bool,
    /// `inference/request`.
    pub inference_request: bool,
    /// `inference/chunk`.
    pub streaming: bool,
    /// `model/info`.
    pub model_info: bool,
    /// `channels/*`.
    pub channels: ChannelFeatures,
}

/// The positions of additions to a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectFeatures {
    /// With the system instructions.
    pub system: bool,
    /// Before the user's message.
    pub before_user: bool,
    /// After the user's message.
    pub after_user: bool,
}

/// The channel features (MCPL §14.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelFeatures {
    /// `channels/register`, `channels/changed`.
    pub register: bool,
    /// `channels/publish`.
    pub publish: bool,
    /// `channels/incoming`, `channels/outgoing/complete`.
    pub observe: bool,
    /// `channels/incoming`, in 0.5 apart from the rest.
    pub incoming: bool,
    /// `channels/open`, `channels/close`.
    pub lifecycle: bool,
    /// `channels/outgoing/chunk`.
    pub streaming: bool,
}

impl ChannelFeatures {
    /// True if any is declared.
    #[must_use]
    pub fn has_any(self) -> bool {
        self.register || self.publish || self.observe || self.lifecycle || self.streaming
    }
}

impl McplFeatures {
    /// True if a capability of a set is declared. Tools are declared in MCP's own capabilities.
    #[must_use]
    pub fn has_capability(self, capability: Capability) -> bool {
        let is_0_4 = self.version == McplVersion::V0_4;
        match capability {
            Capability::PushEvents => self.push_events,
            Capability::BeforeInference => self.before_inference,
            Capability::BeforeObserve => self.observe,
            Capability::InjectSystem => self.inject.system,
            Capability::InjectBeforeUser => self.inject.before_user,
            Capability::InjectAfterUser => self.inject.after_user,
            Capability::AfterInference => self.after_inference,
            Capability::InferenceLifecycle => self.lifecycle,
            Capability::InferenceRequest => self.inference_request,
            Capability::InferenceStreaming => self.streaming,
            Capability::ModelInfo => self.model_info,
            Capability::Tools => true,
            Capability::ChannelsPublish => self.channels.publish,
            Capability::ChannelsObserve => self.channels.observe,
            Capability::ChannelsIncoming => self.channels.incoming,
            // Whether 0.4 reports parts of an output is no capability of a set.
            Capability::ChannelsStreaming if is_0_4 => self.channels.observe,
            Capability::ChannelsStreaming => self.channels.streaming,
            Capability::ChannelsRegister => self.channels.register,
            Capability::ChannelsLifecycle => self.channels.lifecycle,
            // Not offered by this kernel, so that no set of a server has them.
            Capability::ChannelsAcknowledge | Capability::ChannelsTyping => false,
        }
    }
}

/// The declaration of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// The announced version.
    pub version: String,
    /// The declared features.
    pub features: McplFeatures,
    /// Its feature sets.
    pub sets: DeclaredSets,
    /// The whole declaration as written, of a server that speaks 0.5: its changes are found by comparison.
    pub manifest: Option<Box<str>>,
}

/// The form in which a program writes and reads feature sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureSetForm {
    /// An object with the names as keys, as in the document.
    #[default]
    ByName,
    /// An array of sets that each have a `name`; `channels` and `inferenceRequest` are plain booleans
    /// beside it. Used by programs on mcpl-core.
    List,
}

/// The declaration of an agent that is a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCapabilities {
    /// The form in which it reads feature sets.
    pub form: FeatureSetForm,
    /// The announced version.
    pub(crate) version: String,
    /// The declared features.
    pub features: McplFeatures,
    /// True if it selects feature sets.
    pub(crate) feature_sets: bool,
}

/// An invalid declaration, which counts as none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McplDeclarationError {
    /// Not an object.
    #[error("its `experimental.mcpl` is no object")]
    NotAnObject,
    /// `version` is missing or invalid.
    #[error("its MCPL version {0:?} is none")]
    NoVersion(String),
    /// Another major version (A-13).
    #[error("it speaks MCPL {0}, this kernel {VERSION}")]
    OtherMajor(String),
}

#[derive(Default, Deserialize)]
struct Experimental<'a> {
    #[serde(borrow, default)]
    mcpl: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFeatures<'a> {
    #[serde(borrow, default)]
    version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    push_events: Option<&'a RawValue>,
    #[serde(borrow, default)]
    context_hooks: Option<&'a RawValue>,
    #[serde(borrow, default)]
    inference_request: Option<&'a RawValue>,
    #[serde(borrow, default)]
    model_info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    inference_lifecycle: Option<&'a RawValue>,
    #[serde(borrow, default)]
    feature_sets: Option<&'a RawValue>,
    #[serde(borrow, default)]
    channels: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawHooks<'a> {
    #[serde(borrow, default)]
    before_inference: Option<&'a RawValue>,
    #[serde(borrow, default)]
    after_inference: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBefore<'a> {
    #[serde(borrow, default)]
    observe: Option<&'a RawValue>,
    #[serde(borrow, default)]
    inject: Option<&'a RawValue>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    before_user: Option<&'a RawValue>,
    #[serde(borrow, default)]
    after_user: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct RawFlags<'a> {
    #[serde(borrow, default)]
    blocking: Option<&'a RawValue>,
    #[serde(borrow, default)]
    streaming: Option<&'a RawValue>,
    #[serde(borrow, default)]
    register: Option<&'a RawValue>,
    #[serde(borrow, default)]
    publish: Option<&'a RawValue>,
    #[serde(borrow, default)]
    observe: Option<&'a RawValue>,
    #[serde(borrow, default)]
    incoming: Option<&'a RawValue>,
    #[serde(borrow, default)]
    lifecycle: Option<&'a RawValue>,
}

/// Parses an object as `T`; anything else counts as absent. Serde would accept an array too.
fn parse_or_default<'a, T: Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> T {
    raw.filter(|raw| raw.get().starts_with('{'))
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

/// True for `true` only.
fn is_true(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true")
}

/// True if declared as `true`, or as an object with details.
fn is_declared(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true" || raw.get().starts_with('{'))
}

/// A declaration as written.
struct RawCapabilities<'a> {
    version: String,
    spoken: McplVersion,
    text: &'a str,
    written: RawFeatures<'a>,
}

/// Finds the declaration in a capabilities object, if it is an object.
fn find_declaration(
    capabilities: Option<&RawValue>,
) -> Result<Option<RawCapabilities<'_>>, McplDeclarationError> {
    let text = capabilities.map_or("", RawValue::get);
    if !can_contain_string(text.as_bytes(), "mcpl") {
        return Ok(None);
    }
    let Some(experimental) = member(text, "experimental") else {
        return Ok(None);
    };
    let experimental: Experimental<'_> = if experimental.starts_with('{') {
        serde_json::from_str(experimental).unwrap_or_default()
    } else {
        Experimental::default()
    };
    let Some(declared) = experimental.mcpl else {
        return Ok(None);
    };
    parse_declared(declared.get()).map(Some)
}

/// Parses the declaration itself.
fn parse_declared(text: &str) -> Result<RawCapabilities<'_>, McplDeclarationError> {
    if !text.starts_with('{') {
        return Err(McplDeclarationError::NotAnObject);
    }
    // A duplicate member is ambiguous.
    let written: RawFeatures<'_> =
        serde_json::from_str(text).map_err(|_| McplDeclarationError::NotAnObject)?;
    let version: Option<Cow<'_, str>> = written
        .version
        .and_then(|raw| serde_json::from_str(raw.get()).ok());
    let version: String = version
        .unwrap_or_default()
        .chars()
        .take(VERSION_MAX)
        .collect();
    let mut parts = version.split(['.', '-', '+']);
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u32>().ok());
    match (number(parts.next()), number(parts.next())) {
        (Some(0), Some(minor)) => Ok(RawCapabilities {
            version,
            spoken: McplVersion::for_minor(minor),
            text,
            written,
        }),
        (Some(_), Some(_)) => Err(McplDeclarationError::OtherMajor(version)),
        _ => Err(McplDeclarationError::NoVersion(version)),
    }
}

impl McplFeatures {
    fn from_raw(version: McplVersion, written: &RawFeatures<'_>) -> Self {
        match version {
            McplVersion::V0_4 => Self::from_raw_0_4(written),
            McplVersion::V0_5 => Self::from_raw_0_5(written),
        }
    }

    fn from_raw_0_4(written: &RawFeatures<'_>) -> Self {
        let hooks: RawHooks<'_> = parse_or_default(written.context_hooks);
        let after: RawFlags<'_> = parse_or_default(hooks.after_inference);
        let inference: RawFlags<'_> = parse_or_default(written.inference_request);
        let all_channels = is_true(written.channels);
        let channels: RawFlags<'_> = parse_or_default(written.channels);
        let channel = |flag| all_channels || is_true(flag);
        let before = is_true(hooks.before_inference);
        Self {
            version: McplVersion::V0_4,
            push_events: is_true(written.push_events),
            before_inference: before,
            observe: before,
            inject: InjectFeatures {
                system: before,
                before_user: before,
                after_user: before,
            },
            lifecycle: false,
            after_inference: is_declared(hooks.after_inference),
            blocking: is_true(after.blocking),
            inference_request: is_declared(written.inference_request),
            streaming: is_true(inference.streaming),
            model_info: is_true(written.model_info),
            channels: ChannelFeatures {
                register: channel(channels.register),
                publish: channel(channels.publish),
                observe: channel(channels.observe),
                incoming: channel(channels.observe),
                lifecycle: channel(channels.lifecycle),
                streaming: channel(channels.streaming),
            },
        }
    }

    /// `true` stands for every leaf below it (0.5 §5.1).
    fn from_raw_0_5(written: &RawFeatures<'_>) -> Self {
        let all_hooks = is_true(written.context_hooks);
        let hooks: RawHooks<'_> = parse_or_default(written.context_hooks);
        let whole = all_hooks || is_true(hooks.before_inference);
        let before: RawBefore<'_> = parse_or_default(hooks.before_inference);
        let all_positions = whole || is_true(before.inject);
        let inject: RawBefore<'_> = parse_or_default(before.inject);
        let observe = whole || is_true(before.observe);
        let inject = InjectFeatures {
            system: all_positions || is_true(inject.system),
            before_user: all_positions || is_true(inject.before_user),
            after_user: all_positions || is_true(inject.after_user),
        };
        let inference: RawFlags<'_> = parse_or_default(written.inference_request);
        let all_channels = is_true(written.channels);
        let channels: RawFlags<'_> = parse_or_default(written.channels);
        let channel = |flag| all_channels || is_true(flag);
        let (incoming, streaming) = (channel(channels.incoming), channel(channels.streaming));
        Self {
            version: McplVersion::V0_5,
            push_events: is_true(written.push_events),
            before_inference: observe || inject.system || inject.before_user || inject.after_user,
            observe,
            inject,
            lifecycle: is_true(written.inference_lifecycle),
            after_inference: false,
            blocking: false,
            inference_request: is_declared(written.inference_request),
            streaming: is_true(written.inference_request) || is_true(inference.streaming),
            model_info: is_true(written.model_info),
            channels: ChannelFeatures {
                register: channel(channels.register),
                publish: channel(channels.publish),
                observe: incoming || streaming,
                incoming,
                lifecycle: channel(channels.lifecycle),
                streaming,
            },
        }
    }
}

impl ServerCapabilities {
    /// Parses a server's declaration in its capabilities object; `None` without MCPL.
    ///
    /// # Errors
    /// [`McplDeclarationError`] for an invalid declaration.
    pub fn parse(capabilities: Option<&RawValue>) -> Result<Option<Self>, McplDeclarationError> {
        let found = find_declaration(capabilities)?;
        Ok(found.map(Self::from_raw))
    }

    /// Parses a manifest, which is the declaration itself (0.5 §17.4).
    ///
    /// # Errors
    /// [`McplDeclarationError`] for an invalid declaration.
    pub fn parse_manifest(manifest: &str) -> Result<Self, McplDeclarationError> {
        parse_declared(manifest).map(Self::from_raw)
    }

    fn from_raw(found: RawCapabilities<'_>) -> Self {
        let sets = match found.written.feature_sets.map(RawValue::get) {
            Some(sets) if sets != "null" && sets != "true" => {
                DeclaredSets::parse_version(sets, found.spoken)
            }
            Some(_) | None => DeclaredSets::default(),
        };
        Self {
            features: McplFeatures::from_raw(found.spoken, &found.written),
            manifest: (found.spoken == McplVersion::V0_5).then(|| found.text.into()),
            version: found.version,
            sets,
        }
    }
}

impl HostCapabilities {
    /// Parses an agent's declaration in its capabilities object; `None` without MCPL.
    ///
    /// # Errors
    /// [`McplDeclarationError`] for an invalid declaration.
    pub fn parse(capabilities: Option<&RawValue>) -> Result<Option<Self>, McplDeclarationError> {
        let Some(found) = find_declaration(capabilities)? else {
            return Ok(None);
        };
        let written = &found.written;
        let is_array = |raw: &RawValue| raw.get().starts_with('[');
        let lists = written.feature_sets.is_some_and(is_array);
        Ok(Some(Self {
            form: if found.spoken == McplVersion::V0_4 && (lists || is_true(written.channels)) {
                FeatureSetForm::List
            } else {
                FeatureSetForm::ByName
            },
            features: McplFeatures::from_raw(found.spoken, written),
            feature_sets: lists || is_declared(written.feature_sets),
            version: found.version,
        }))
    }
}

/// Adds this MCPL declaration to a capabilities object, as JSON text.
#[must_use]
pub fn with_declaration(capabilities: &str, declaration: &str) -> String {
    let mut splice = Splice::new(capabilities);
    match member(capabilities, "experimental").filter(|at| at.starts_with('{')) {
        Some(experimental) => match member(experimental, "mcpl") {
            Some(declared) => splice.replace(declared, declaration.to_owned()),
            None => splice.insert_member(experimental, "mcpl", declaration),
        },
        None => {
            let experimental = format!(r#"{{"mcpl":{declaration}}}"#);
            splice.insert_member(capabilities, "experimental", &experimental);
        }
    }
    splice.finish().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn server(mcpl: &str) -> Result<Option<ServerCapabilities>, McplDeclarationError> {
        let text = raw(&format!(
            r#"{{"tools":{{}},"experimental":{{"mcpl":{mcpl}}}}}"#
        ));
        ServerCapabilities::parse(Some(&text))
    }

    /// MCPL-028, MCPL-005, MCPL-114: each feature is parsed independently.
    #[test]
    fn features_are_parsed_independently() {
        let all = server(
            r#"{"version":"0.4","pushEvents":true,"contextHooks":{"beforeInference":true,"afterInference":{"blocking":true}},"inferenceRequest":{"streaming":true},"modelInfo":true,"featureSets":{"a.b":{"description":"d","uses":["tools"]}},"channels":{"register":true,"publish":true,"observe":true,"lifecycle":true,"streaming":true}}"#,
        );
        let all = all.unwrap().unwrap();
        assert!(
            Capability::IN_0_4
                .into_iter()
                .all(|one| all.features.has_capability(one))
        );
        assert!(all.features.blocking && all.features.streaming && all.features.model_info);
        assert!(all.features.channels.lifecycle && all.features.channels.register);
        assert_eq!(all.sets.sets.len(), 1);
        let some = server(
            r#"{"version":"0.4","pushEvents":"true","contextHooks":{"afterInference":{"blocking":false}},"inferenceRequest":true,"channels":[true]}"#,
        );
        let some = some.unwrap().unwrap().features;
        let wanted = McplFeatures {
            after_inference: true,
            inference_request: true,
            ..McplFeatures::default()
        };
        assert_eq!(some, wanted);
        let host = raw(&format!(
            r#"{{"experimental":{{"mcpl":{HOST_DECLARATION}}}}}"#
        ));
        let host = HostCapabilities::parse(Some(&host)).unwrap().unwrap();
        assert!(host.feature_sets && host.features == all.features);
    }

    /// NEW-001: the announced version decides what is spoken; members of another version count for nothing.
    #[test]
    fn announced_version_decides_what_is_spoken() {
        let both = |version: &str| {
            let declared = HOST_DECLARATION.replacen(VERSION, version, 1);
            server(&declared).unwrap().unwrap().features
        };
        for (version, spoken) in [
            ("0.2", McplVersion::V0_4),
            ("0.4", McplVersion::V0_4),
            ("0.4.1-draft", McplVersion::V0_4),
            ("0.5", McplVersion::V0_5),
            ("0.5.0-draft", McplVersion::V0_5),
            ("0.12", McplVersion::V0_5),
        ] {
            let features = both(version);
            assert_eq!(features.version, spoken, "{version}");
            let is_newer = spoken == McplVersion::V0_5;
            assert_eq!(features.lifecycle, is_newer, "{version}");
            assert_eq!(features.after_inference, !is_newer, "{version}");
        }
    }

    /// NEW-003: `true` stands for every leaf below, and each leaf is declared for itself.
    #[test]
    fn declaration_of_0_5_is_read_by_its_leaves() {
        use Capability::{BeforeObserve, InjectAfterUser, InjectBeforeUser, InjectSystem};
        let leaves = [
            BeforeObserve,
            InjectSystem,
            InjectBeforeUser,
            InjectAfterUser,
        ];
        for (hooks, declared) in [
            ("true", [true; 4]),
            (r#"{"beforeInference":true}"#, [true; 4]),
            (
                r#"{"beforeInference":{"observe":true}}"#,
                [true, false, false, false],
            ),
            (
                r#"{"beforeInference":{"inject":true}}"#,
                [false, true, true, true],
            ),
            (
                r#"{"beforeInference":{"observe":false,"inject":{"system":false,"beforeUser":true}}}"#,
                [false, false, true, false],
            ),
            (
                r#"{"beforeInference":{"observe":"true","inject":1}}"#,
                [false; 4],
            ),
        ] {
            let text = format!(r#"{{"version":"0.5","contextHooks":{hooks}}}"#);
            let features = server(&text).unwrap().unwrap().features;
            assert_eq!(
                leaves.map(|leaf| features.has_capability(leaf)),
                declared,
                "{hooks}"
            );
            assert_eq!(features.before_inference, declared != [false; 4], "{hooks}");
        }
        let channels = server(r#"{"version":"0.5","channels":{"incoming":true}}"#);
        let channels = channels.unwrap().unwrap().features;
        assert!(channels.has_capability(Capability::ChannelsIncoming));
        assert!(!channels.has_capability(Capability::ChannelsStreaming));
    }

    /// Programs on mcpl-core write plain booleans and an array of sets.
    #[test]
    fn form_of_mcpl_core_is_parsed() {
        let declared = server(
            r#"{"version":"0.4","pushEvents":true,"channels":true,"featureSets":[{"name":"heartbeat","description":"d","uses":["pushEvents"],"rollback":false,"hostState":false}]}"#,
        );
        let declared = declared.unwrap().unwrap();
        assert!(declared.sets.sets.contains_key("heartbeat"), "{declared:?}");
        assert!(declared.features.channels.register && declared.features.channels.streaming);
        let host = |mcpl: &str| {
            let text = raw(&format!(r#"{{"experimental":{{"mcpl":{mcpl}}}}}"#));
            HostCapabilities::parse(Some(&text)).unwrap().unwrap()
        };
        let harness = host(
            r#"{"version":"0.4","pushEvents":true,"channels":true,"modelInfo":true,"scopedAccess":true}"#,
        );
        assert_eq!(harness.form, FeatureSetForm::List);
        assert!(harness.features.channels.observe);
        assert_eq!(
            host(r#"{"version":"0.4","featureSets":[]}"#).form,
            FeatureSetForm::List
        );
        assert_eq!(host(HOST_DECLARATION).form, FeatureSetForm::ByName);
    }

    /// MCPL-032, A-13: any 0.x is supported; other versions count as no declaration.
    #[test]
    fn other_versions_are_handled() {
        for version in ["0.3", "0.4", "0.5", "0.4.1", "0.4.1-draft", "0.12"] {
            let declared = server(&format!(r#"{{"version":"{version}"}}"#));
            assert_eq!(declared.unwrap().unwrap().version, version);
        }
        let other = server(r#"{"version":"1.0"}"#);
        assert_eq!(other, Err(McplDeclarationError::OtherMajor("1.0".into())));
        for version in [r#""""#, r#""four""#, "0.4", "null", r#""0""#] {
            let declared = server(&format!(r#"{{"version":{version}}}"#));
            assert!(
                matches!(declared, Err(McplDeclarationError::NoVersion(_))),
                "{version}"
            );
        }
        assert!(matches!(
            server("{}"),
            Err(McplDeclarationError::NoVersion(_))
        ));
        assert_eq!(server("true"), Err(McplDeclarationError::NotAnObject));
        let twice = r#"{"version":"0.4","pushEvents":false,"pushEvents":true}"#;
        assert_eq!(server(twice), Err(McplDeclarationError::NotAnObject));
        assert_eq!(ServerCapabilities::parse(Some(&raw("{}"))), Ok(None));
        let elsewhere = raw(r#"{"mcpl":{"version":"0.4"},"experimental":{"x":"mcpl"}}"#);
        assert_eq!(ServerCapabilities::parse(Some(&elsewhere)), Ok(None));
    }

    /// MCPL-004, MCPL-029: below `experimental`, beside other members.
    #[test]
    fn declaration_is_added_below_experimental() {
        let at = |capabilities: &str| with_declaration(capabilities, "{}");
        assert_eq!(at("{}"), r#"{"experimental":{"mcpl":{}}}"#);
        assert_eq!(
            at(r#"{"tools":{},"experimental":{"mgp":{"a":1}}}"#),
            r#"{"tools":{},"experimental":{"mcpl":{},"mgp":{"a":1}}}"#
        );
        assert_eq!(
            at(r#"{"experimental":{"mcpl":7}}"#),
            r#"{"experimental":{"mcpl":{}}}"#
        );
        let declared: serde_json::Value = serde_json::from_str(HOST_DECLARATION).unwrap();
        assert_eq!(declared["version"], VERSION);
    }
}
