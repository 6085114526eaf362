//! Platforms of images: decides by all their names if this node can run them. Owns the normal form, the same
//! as containerd's.

use std::fmt;

use crate::json::Fields;

/// A platform in the terms of the OCI image specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Platform {
    os: String,
    architecture: String,
    variant: String,
}

impl Platform {
    /// Reads the fields of a config, or of an index's entry. Builders also use other names, in any case.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Platform, String> {
        let lower = |name| fields.text(name).map(|text| text.to_ascii_lowercase());
        let (mut os, mut architecture, variant) = (lower("os")?, lower("architecture")?, lower("variant")?);
        if os.is_empty() {
            "linux".clone_into(&mut os);
        }
        match architecture.as_str() {
            "x86_64" | "x86-64" => "amd64".clone_into(&mut architecture),
            "i386" => "386".clone_into(&mut architecture),
            _ => {}
        }
        Ok(Platform { os, architecture, variant })
    }

    /// Returns the same platform, with this node's architecture if it names none.
    pub(crate) fn or_ours(mut self) -> Platform {
        if self.architecture.is_empty() {
            "amd64".clone_into(&mut self.architecture);
        }
        self
    }

    /// Returns true if the image is for Linux, on any processor.
    pub(crate) fn is_linux(&self) -> bool {
        self.os == "linux"
    }

    /// Ranks the platform for a processor of this level: higher is better. `None` does not fit. 32-bit
    /// programs run too.
    pub(crate) fn rank(&self, level: u8) -> Option<u8> {
        let wanted = match (self.os.as_str(), self.architecture.as_str(), self.variant.as_str()) {
            ("linux", "386", _) => 0,
            ("linux", "amd64", "" | "v1") => 1,
            ("linux", "amd64", "v2") => 2,
            ("linux", "amd64", "v3") => 3,
            ("linux", "amd64", "v4") => 4,
            _ => return None,
        };
        (wanted <= level).then_some(wanted)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if self.variant.is_empty() { Ok(()) } else { write!(f, "/{}", self.variant) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn platform(text: &str) -> Platform {
        let names = ["os", "architecture", "variant"];
        let fields: serde_json::Map<_, _> =
            names.iter().zip(text.split('/')).map(|(name, part)| ((*name).to_owned(), part.into())).collect();
        let text = serde_json::Value::from(fields).to_string();
        Platform::read(&Json::parse(text.as_bytes()).unwrap().fields().unwrap()).unwrap()
    }

    #[test]
    fn a_platform_is_known_by_every_name_that_builders_give_it() {
        for (given, normal) in [
            ("linux/amd64", "linux/amd64"),
            ("Linux/AMD64/V2", "linux/amd64/v2"),
            ("/x86_64", "linux/amd64"),
            ("LINUX/x86-64", "linux/amd64"),
            ("linux/i386", "linux/386"),
            ("windows/", "windows/"),
            ("linux/arm/v7", "linux/arm/v7"),
            ("unknown/unknown", "unknown/unknown"),
        ] {
            assert_eq!(platform(given).to_string(), normal, "{given}");
        }
        assert_eq!(platform("/").or_ours().to_string(), "linux/amd64");
    }

    #[test]
    fn the_processor_decides_which_variants_run() {
        for (text, levels) in [
            ("linux/386", [Some(0), Some(0)]),
            ("linux/amd64", [Some(1), Some(1)]),
            ("linux/amd64/v1", [Some(1), Some(1)]),
            ("linux/amd64/v2", [None, Some(2)]),
            ("linux/amd64/v3", [None, Some(3)]),
            ("linux/amd64/v4", [None, None]),
            ("linux/amd64/v9", [None, None]),
            ("linux/arm64", [None, None]),
            ("windows/amd64", [None, None]),
            ("linux/", [None, None]),
        ] {
            assert_eq!([1, 3].map(|level| platform(text).rank(level)), levels, "{text}");
        }
    }
}
