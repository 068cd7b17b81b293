CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, region text NOT NULL);
CREATE TABLE orders (
    id int, region text, customer int NOT NULL, amount numeric(10, 2) NOT NULL,
    PRIMARY KEY (id, region));
INSERT INTO customers VALUES (1, 'Ada', 'NSW'), (2, 'Grace', 'VIC');
INSERT INTO orders VALUES (1, 'NSW', 1, 10.50), (2, 'VIC', 2, 99.00);
