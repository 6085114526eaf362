//! Reasons why plugins prevent an operation.

use proto_nri::nri::Field;

use crate::name::PluginName;

/// An event refused by plugins, or one with conflicting answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NriError {
    /// A plugin answered with an error.
    #[error("NRI plugin {plugin} refused {event}: {message}")]
    Refused {
        /// The plugin.
        plugin: PluginName,
        /// Name of the event.
        event: &'static str,
        /// The plugin's text.
        message: String,
    },
    /// A validating plugin rejected an adjustment.
    #[error("NRI plugin {plugin} rejected the container's adjustment: {reason}")]
    Rejected {
        /// The plugin.
        plugin: PluginName,
        /// The plugin's reason.
        reason: String,
    },
    /// A validating plugin is gone, so the adjustment was not validated.
    #[error("NRI plugin {plugin} did not validate the container's adjustment: it is gone")]
    NotValidated {
        /// The plugin.
        plugin: PluginName,
    },
    /// Two plugins set the same field.
    #[error("NRI plugins {first} and {second} both set {field:?} {key:?} of container {container}")]
    Conflict {
        /// The plugin asked first.
        first: PluginName,
        /// The plugin asked later.
        second: PluginName,
        /// The field, as NRI numbers them.
        field: Field,
        /// The field's entry. Empty if the field has no entries.
        key: String,
        /// The container's id.
        container: String,
    },
    /// An answer is invalid.
    #[error("the answer of NRI plugin {plugin} is not valid: {reason}")]
    Invalid {
        /// The plugin.
        plugin: PluginName,
        /// The defect.
        reason: String,
    },
    /// The event was given up because too many others waited for the plugin.
    #[error("NRI plugin {plugin} is busy: {event} waited in vain")]
    Busy {
        /// The plugin.
        plugin: PluginName,
        /// Name of the event.
        event: &'static str,
    },
}
