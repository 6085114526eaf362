//! Why plugins keep something from being done.

use proto_nri::nri::Field;

use crate::name::PluginName;

/// An event that plugins refused, or whose answers do not go together.
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
    /// A plugin that validates adjustments did not accept one.
    #[error("NRI plugin {plugin} rejected the container's adjustment: {reason}")]
    Rejected {
        /// The plugin.
        plugin: PluginName,
        /// The plugin's reason.
        reason: String,
    },
    /// A plugin that validates adjustments is gone, so that nobody has validated one.
    #[error("NRI plugin {plugin} did not validate the container's adjustment: it is gone")]
    NotValidated {
        /// The plugin.
        plugin: PluginName,
    },
    /// Two plugins want different things.
    #[error("NRI plugins {first} and {second} both set {field:?} {key:?} of container {container}")]
    Conflict {
        /// The plugin that was asked first.
        first: PluginName,
        /// The plugin that was asked later.
        second: PluginName,
        /// The field, as NRI numbers them.
        field: Field,
        /// The entry of the field; empty where it has none.
        key: String,
        /// The container's id.
        container: String,
    },
    /// An answer makes no sense.
    #[error("the answer of NRI plugin {plugin} is not valid: {reason}")]
    Invalid {
        /// The plugin.
        plugin: PluginName,
        /// The defect.
        reason: String,
    },
    /// So many events wait for a plugin that this one was given up.
    #[error("NRI plugin {plugin} is busy: {event} waited in vain")]
    Busy {
        /// The plugin.
        plugin: PluginName,
        /// Name of the event.
        event: &'static str,
    },
}
