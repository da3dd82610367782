-- Store the number of an account that was not known.
UPDATE tenants SET account_id = %(account_id)s WHERE tenant = %(tenant)s AND account_id = 0;
