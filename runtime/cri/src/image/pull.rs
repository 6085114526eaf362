//! PullImage: the answer is the image's id, as ListImages returns it.

use proto_cri::v1;
use runtime_image::{Credentials, Images};

use super::image_name;
use crate::error::Failure;

pub(crate) async fn pull(
    images: &Images,
    request: v1::PullImageRequest,
) -> Result<v1::PullImageResponse, Failure> {
    let name = image_name(request.image)?;
    let credentials = request.auth.map(credentials).transpose()?.flatten();
    let image = images.pull(&name, credentials).await?;
    Ok(v1::PullImageResponse { image_ref: image.id })
}

/// A token, or user and password, given apart or as base64 of `user:password` (the form of docker's config.json). The
/// registry's own token counts before the one that others are asked for with, and that before a password, as in docker.
fn credentials(auth: v1::AuthConfig) -> Result<Option<Credentials>, Failure> {
    if !auth.registry_token.is_empty() {
        return Ok(Some(Credentials::RegistryToken(auth.registry_token)));
    }
    if !auth.identity_token.is_empty() {
        return Ok(Some(Credentials::IdentityToken(auth.identity_token)));
    }
    if !auth.username.is_empty() {
        let (username, password) = (auth.username, auth.password);
        return Ok(Some(Credentials::Password { username, password }));
    }
    if auth.auth.is_empty() {
        return Ok(None);
    }
    // The message never repeats what was sent: it is a secret.
    let malformed = || Failure::invalid("auth.auth is not base64 of user:password");
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, auth.auth)
        .map_err(|_| malformed())?;
    let text = String::from_utf8(bytes).map_err(|_| malformed())?;
    let (username, password) = text.split_once(':').ok_or_else(malformed)?;
    // Old docker clients pad the password with NULs.
    Ok(Some(Credentials::Password {
        username: username.to_owned(),
        password: password.trim_end_matches('\0').to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_auth_string_gives_user_and_password() {
        let auth = v1::AuthConfig { auth: "dXNlcjpwYTpzcw==".into(), ..Default::default() };
        let expected = Credentials::Password { username: "user".into(), password: "pa:ss".into() };
        assert_eq!(credentials(auth).unwrap(), Some(expected));
    }

    #[test]
    fn an_empty_auth_means_anonymous() {
        assert!(credentials(v1::AuthConfig::default()).unwrap().is_none());
    }

    #[test]
    fn a_token_counts_before_a_password() {
        let mut auth = v1::AuthConfig { username: "user".into(), ..Default::default() };
        auth.identity_token = "i".into();
        assert_eq!(credentials(auth.clone()).unwrap(), Some(Credentials::IdentityToken("i".into())));
        auth.registry_token = "r".into();
        assert_eq!(credentials(auth).unwrap(), Some(Credentials::RegistryToken("r".into())));
    }

    #[test]
    fn a_malformed_secret_is_not_repeated() {
        let error =
            credentials(v1::AuthConfig { auth: "c2VjcmV0".into(), ..Default::default() }).err().unwrap();
        assert!(!error.to_string().contains("c2VjcmV0") && !error.to_string().contains("secret"));
    }
}
