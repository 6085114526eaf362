//! Pull: begins a pull, or joins one in progress.

use proto_images::v1::{self, PullRequest};
use runtime_image::{Credentials, Image, Images, Running};

use crate::error::Failure;

pub(super) fn pull(images: &Images, request: PullRequest) -> Result<Running<Image>, Failure> {
    if request.image.is_empty() {
        return Err(Failure::invalid("image is empty"));
    }
    Ok(images.begin_pull(&request.image, request.credentials.and_then(credentials))?)
}

/// The registry's own token has precedence over an identity token, and that over a password, as in PullImage.
fn credentials(given: v1::Credentials) -> Option<Credentials> {
    let v1::Credentials { username, password, identity_token, registry_token } = given;
    match () {
        () if !registry_token.is_empty() => Some(Credentials::RegistryToken(registry_token)),
        () if !identity_token.is_empty() => Some(Credentials::IdentityToken(identity_token)),
        () if !username.is_empty() => Some(Credentials::Password { username, password }),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_before_a_password_and_nothing_is_nobody() {
        let mut given = v1::Credentials { username: "u".into(), password: "p".into(), ..Default::default() };
        let password = Credentials::Password { username: "u".into(), password: "p".into() };
        assert_eq!(credentials(given.clone()), Some(password));
        given.identity_token = "i".into();
        assert_eq!(credentials(given.clone()), Some(Credentials::IdentityToken("i".into())));
        given.registry_token = "r".into();
        assert_eq!(credentials(given), Some(Credentials::RegistryToken("r".into())));
        assert_eq!(credentials(v1::Credentials::default()), None);
    }
}
