# Verifies certificates of users: CN is the user, O are the groups.
subject = /CN=dev-client-ca
kind    = ca
days    = 3650
