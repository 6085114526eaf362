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
    let auth = request.auth.filter(|auth| is_for(&auth.server_address, &name));
    let credentials = auth.map(credentials).transpose()?.flatten();
    let image = images.pull(&name, credentials).await?;
    Ok(v1::PullImageResponse { image_ref: image.id })
}

/// Returns true if credentials for the registry at this address are for the image's registry. Those without
/// an address always are.
fn is_for(address: &str, image: &str) -> bool {
    let host = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default().to_ascii_lowercase();
    let host = match host.as_str() {
        "" => return true,
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    };
    let repository = runtime_image::repository(image).unwrap_or_default().to_ascii_lowercase();
    repository.split('/').next() == Some(host)
}

/// A token, or user and password, given separately or as base64 of `user:password` (the form of docker's
/// config.json). As in docker, the registry's own token has precedence over an identity token, and that over
/// a password.
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
    // The message never repeats the credentials.
    let malformed = || Failure::invalid("auth.auth is not base64 of user:password");
    // Files may have it in several lines.
    let text: String = auth.auth.split_ascii_whitespace().collect();
    let bytes =
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).map_err(|_| malformed())?;
    let text = String::from_utf8(bytes).map_err(|_| malformed())?;
    let (username, password) = text.split_once(':').ok_or_else(malformed)?;
    // Old docker clients pad the password with NULs.
    let (username, password) = (username.to_owned(), password.trim_matches('\0').to_owned());
    match username.is_empty() {
        // The form in which docker's login stores an identity token.
        true => Ok((!password.is_empty()).then_some(Credentials::IdentityToken(password))),
        false => Ok(Some(Credentials::Password { username, password })),
    }
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
    fn an_auth_string_may_have_lines_padding_and_no_user() {
        let of =
            |auth: &str| credentials(v1::AuthConfig { auth: auth.into(), ..Default::default() }).unwrap();
        let expected = Credentials::Password { username: "user".into(), password: "pa:ss".into() };
        assert_eq!(of("dXNlcjpw\r\nYTpzcwAA\n"), Some(expected));
        assert_eq!(of("OmlkZW50aXR5"), Some(Credentials::IdentityToken("identity".into())));
        assert_eq!(of("Og=="), None);
    }

    #[test]
    fn credentials_go_to_the_registry_that_they_are_for() {
        for (address, image, is) in [
            ("", "a/b", true),
            ("https://index.docker.io/v1/", "busybox", true),
            ("docker.io", "a/b:1", true),
            ("registry-1.docker.io", "docker.io/a/b", true),
            ("https://R.example:5000", "r.example:5000/a", true),
            ("r.example/v2/", "r.example/a", true),
            ("r.example", "r.example:5000/a", false),
            ("https://evil.example", "r.example/a", false),
            ("quay.io", "busybox", false),
        ] {
            assert_eq!(is_for(address, image), is, "{address} {image}");
        }
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
